"""A prediction in words, and what has to be there for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.cli import predicting
from flagscale_perf.spine.errors import PerfError
from tests.captured_runs import evenly, make_late, write_run


def test_an_answer_is_what_the_command_prints_and_is_not_entered(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a" / "run", make_late(evenly(), 1, 15))
    lines = predicting.answer(open_session(path), ["rank=1 forward=peers"])
    words = "rank=1 measured predicted gain throughput interval ceiling tokens/s MFU checked note"
    assert [line.split()[0] for line in lines] == words.split()
    assert lines[0] == "rank=1 forward=peers  (class A)"
    assert not (path.parent / "predictions.jsonl").exists()


def test_without_numpy_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_engine() -> None:
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")

    monkeypatch.setattr(predicting, "engine", no_engine)
    with pytest.raises(PerfError, match="what-if needs numpy, which is not installed"):
        predicting.engine_here()
    monkeypatch.setattr(predicting, "engine", lambda: None)
    with pytest.raises(PerfError, match="needs the room `whatif`"):
        predicting.engine_here()
