"""Stacks of this process, and of another one as far as the system lets look."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flagscale_perf.training import stacks
from tests.members import wait_for


def test_paths_are_shortened_to_what_tells_them_apart() -> None:
    assert stacks.shortened("/opt/env/lib/python3.11/site-packages/torch/nn/a.py") == "torch/nn/a.py"
    assert stacks.shortened("/usr/lib/python3.11/threading.py") == "python3.11/threading.py"
    assert stacks.shortened("/srv/job/train.py") == "/srv/job/train.py"


def test_own_threads_are_there_without_ours() -> None:
    is_over = threading.Event()
    names = ("loader", "flagscale_perf ring")
    threads = [threading.Thread(target=is_over.wait, name=name, daemon=True) for name in names]
    for each in threads:
        each.start()
    wait_for(lambda: "loader" in stacks.own(threading.get_ident()).threads)
    seen = stacks.own(threading.get_ident())
    is_over.set()
    for each in threads:
        each.join()
    assert any(frame.endswith(" test_own_threads_are_there_without_ours") for frame in seen.main)
    assert seen.threads["loader"][0].startswith("python3") and "flagscale_perf ring" not in seen.threads


def test_of_another_process_py_spy_or_the_system_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        wait_for(lambda: stacks.of_process(child.pid).state.startswith("sleeping"))
        assert stacks.of_process(child.pid).source == "/proc"
        spy = tmp_path / "py-spy"
        frame = '{"name": "step", "filename": "/job/train.py", "line": 7}'
        about = f'"os_thread_id": {child.pid}, "thread_id": 1, "thread_name": "MainThread"'
        thread = f'{{{about}, "frames": [{frame}]}}'
        spy.write_text(f"#!/bin/sh\necho '[{thread}]'\n")
        spy.chmod(0o755)
        seen = stacks.of_process(child.pid)
        assert (seen.main, seen.threads, seen.source) == (["/job/train.py:7 step"], {}, "py-spy")
    finally:
        child.kill()
        child.wait()
    assert stacks.of_process(os.getpid() + 10_000_000).state == ""
