"""`flagscale-perf stacks`: prints what the run answers."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from flagscale_perf.cli import main
from flagscale_perf.cli.stacks import lines_of
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.records import EventRecord
from tests.unit.cli.test_capture import live_run, write
from tests.unit.training.ranks.test_hang import doing

FRAMES = [f"/job/a.py:{line} step" for line in range(14)]


def test_it_asks_and_prints_what_comes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with live_run(tmp_path, breakdown=False) as (_, fd):
        is_over = threading.Event()

        def answer() -> None:
            while not is_over.wait(0.01):
                for request in tmp_path.glob("perf_capture_*.json"):
                    assert request.read_text() == '{"stacks":true}'
                    request.unlink()
                    write(fd, doing(0), doing(1), EventRecord("stacks", 1, 41, "ranks 0, 1: for 62 s in x"))

        thread = threading.Thread(target=answer)
        thread.start()
        assert main(["stacks", str(tmp_path)]) == 0
        is_over.set()
        thread.join()
    assert capsys.readouterr().out.splitlines() == [
        "ranks 0, 1: for 62 s in x",
        "",
        "ranks 0, 1: iteration 42, exposed_grad_comm, for 62.0 s",
        "    torch/distributed/distributed_c10d.py:1 all_reduce",
        "    /job/train.py:7 step",
    ]


def test_long_stacks_and_other_threads_are_shown_in_full_only() -> None:
    long = doing(3, stack=FRAMES, threads={"loader": ["/job/b.py:1 get"]}, debug_port=41234, for_ns=NS_PER_S)
    assert lines_of([long], is_full=False)[-2:] == ["    /job/a.py:11 step", "    ... 2 more: --full"]
    lines = lines_of([long], is_full=True)
    assert lines[1] == (
        "rank 3 (node0, pid 103): iteration 42, exposed_grad_comm, for 1.0 s,"
        " torch.distributed.debug answers at node0:41234"
    )
    assert lines[-3:] == ["    /job/a.py:13 step", "  thread loader", "    /job/b.py:1 get"]


def test_a_process_that_does_not_answer() -> None:
    stopped = doing(
        1, None, iteration=None, phase=None, for_ns=None, stack=[], source="/proc", state="stopped"
    )
    assert lines_of([stopped], is_full=False) == [
        "",
        "rank 1 (node0, pid 101): its process does not answer, as /proc sees it (stopped)",
    ]
