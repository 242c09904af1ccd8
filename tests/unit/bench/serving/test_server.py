"""A server as a process: its port, its metrics, its reasons, its end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from flagscale_perf.bench.serving.server import Server, Start, last_error
from flagscale_perf.spine.errors import PerfError
from tests.serving import fake_python


@pytest.fixture
def begin(tmp_path: Path) -> Callable[..., Server]:
    """`begin(pipeline)`: a server."""

    def make(pipeline: int = 1) -> Server:
        options = ("--tensor-parallel-size", "2", "--pipeline-parallel-size", str(pipeline))
        return Server(Start(fake_python(tmp_path), options, dict(os.environ), tmp_path / "log"))

    return make


def test_it_answers_and_is_gone_when_it_is_stopped(begin: Callable[..., Server]) -> None:
    server = begin()
    try:
        server.wait(60)
        assert server.is_alive and server.memory_bytes() > 1 << 20
        assert server.preemptions() == 3.0 and server.ask("/nowhere") is None
    finally:
        server.stop()
    assert not server.is_alive and server.memory_bytes() == 0 and server.preemptions() is None


def test_one_that_ends_says_why_the_engine_failed_first(begin: Callable[..., Server]) -> None:
    server = begin(pipeline=2)
    with pytest.raises(PerfError, match=r"^vLLM ended while it started: AssertionError: no tensors \("):
        server.wait(60)
    server.stop()


def test_the_reason_in_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_error(log).startswith("no log: ")
    log.write_text("")
    assert last_error(log) == "it printed nothing"
    log.write_text("begin\nthe end\n\n")
    assert last_error(log) == "the end"
    log.write_text("(APIServer pid=1) ValueError: too small\nother\ntorch.OutOfMemoryError: 5 GiB\n")
    assert last_error(log) == "ValueError: too small"
