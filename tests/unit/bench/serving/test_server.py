"""A server as a process: its port, its metrics, its reasons, its end."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from flagscale_perf.bench.serving.server import Server, Start, last_error
from flagscale_perf.spine.errors import PerfError
from tests.serving import fake_python


def start(directory: Path, pipeline: int = 1, **changed: object) -> Start:
    options = ("--tensor-parallel-size", "2", "--pipeline-parallel-size", str(pipeline))
    fields = {"python": fake_python(directory), "options": options, "environment": dict(os.environ)}
    return Start(**{**fields, "log": directory / "log", **changed})  # type: ignore[arg-type]


def test_it_answers_and_is_gone_when_it_is_stopped(tmp_path: Path) -> None:
    server = Server(start(tmp_path))
    try:
        server.wait(60)
        assert server.is_alive and server.memory_bytes() > 1 << 20
        assert server.gauge("kv_cache_size_tokens") == 4096.0
        assert server.gauge("num_preemptions_total") == 3.0
        assert server.gauge("something_else") is None and server.ask("/nowhere") is None
    finally:
        server.stop()
    assert not server.is_alive and server.memory_bytes() == 0 and server.ask("/health") is None


def test_one_that_ends_says_why_the_engine_failed_first(tmp_path: Path) -> None:
    server = Server(start(tmp_path, pipeline=2))
    with pytest.raises(PerfError, match=r"^vLLM ended while it started: AssertionError: no tensors \("):
        server.wait(60)
    server.stop()


def test_a_port_that_is_taken_and_a_program_that_is_none(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PerfError, match=f"^--vllm-port {port}: Address already in use; name another"):
            Server(start(tmp_path, port=port))
    with pytest.raises(PerfError, match="nothing: cannot be run"):
        Server(start(tmp_path, python=str(tmp_path / "nothing")))


def test_the_reason_in_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_error(log).startswith("no log: ")
    log.write_text("")
    assert last_error(log) == "it printed nothing"
    log.write_text("begin\nthe end\n\n")
    assert last_error(log) == "the end"
    log.write_text("(APIServer pid=1) ValueError: too small\nother\ntorch.OutOfMemoryError: 5 GiB\n")
    assert last_error(log) == "ValueError: too small"
