"""A task on its way into the writer process."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from flagscale_perf.writer.task import WriterTask, decode


def test_a_task_comes_out_as_it_went_in(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = WriterTask.of({"perf_debug": True}, {"dtype": complex(0, 1)}, "logs", {"rank": 0})
    assert (task.facts, task.pid, task.directory) == ({"dtype": "1j"}, os.getpid(), tmp_path / "logs")
    task.notes.append("the first has died")
    line = task.encode(7)
    assert line.count(b"\n") == 1
    assert decode(line) == (replace(task, may_serve=True), 7)
    assert not task.may_serve
