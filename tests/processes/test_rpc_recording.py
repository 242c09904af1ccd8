"""Calls recorded by a process, seen by others."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
RECORD = """
import sys
from flagscale_perf.rpc.recording import RecordingOptions, RpcRecorder
from tests.rpc_sessions import FACTS, make_call
recorder = RpcRecorder.start(FACTS, RecordingOptions(directory="logs", methods=sys.argv[1]))
for number, line in enumerate(sys.stdin, 1):
    recorder.observe(make_call(number, method=line.strip()))
    print(number, flush=True)
print(recorder.close("completed", 60), flush=True)
"""
WAIT_S = 60


class Client:
    """A process that records a call for each line it gets."""

    def __init__(self, directory: Path, methods: str = "", script: str = RECORD) -> None:
        environment = os.environ | {"PYTHONPATH": str(REPO)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, methods],
            cwd=directory,
            env=environment,
            text=True,
            bufsize=1,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def call(self, method: str = "BatchLinear") -> int:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{method}\n")
        return int(self.process.stdout.readline())

    def end(self) -> tuple[str, str]:
        out, err = self.process.communicate(timeout=WAIT_S)
        return out, err

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=WAIT_S)


def lines_when(path: Path, is_there) -> list[str]:
    """The log's lines once they are there."""
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        lines = path.read_text().splitlines() if path.exists() else []
        if is_there(lines):
            return lines
        time.sleep(0.01)
    raise AssertionError(f"not in {path} after {WAIT_S} s")


def numbers(lines: list[str]) -> list[int]:
    return [int(line.split()[0]) for line in lines if line[:1].isdigit()]


def test_the_log_is_live_and_ends_with_its_sums(tmp_path) -> None:
    client = Client(tmp_path)
    for number in (1, 2, 3):
        client.call()
        lines_when(tmp_path / "zmq_performance.log", lambda lines: numbers(lines)[-1:] == [number])  # noqa: B023
    out, err = client.end()
    lines = (tmp_path / "zmq_performance.log").read_text().splitlines()
    assert (numbers(lines), err) == ([1, 2, 3], "")
    assert "Calls: 3, failed: 0, records lost: 0" in lines and "Ended: completed" in lines
    summary = json.loads((tmp_path / out.strip()).read_text())
    assert (summary["overall"]["calls"], summary["state"]) == (3, "completed")


def test_nothing_is_lost_when_the_client_is_killed(tmp_path) -> None:
    client = Client(tmp_path)
    for _ in range(500):
        client.call()
    client.kill()
    lines = lines_when(tmp_path / "zmq_performance.log", lambda lines: "Ended: killed" in lines)
    assert numbers(lines) == list(range(1, 501))


def test_only_the_methods_asked_for_are_recorded(tmp_path) -> None:
    client = Client(tmp_path, "BatchLinear,Matmul")
    for method in ("Init", "BatchLinear", "Embedding", "Matmul"):
        client.call(method)
    client.end()
    lines = (tmp_path / "zmq_performance.log").read_text().splitlines()
    assert numbers(lines) == [2, 4]
    assert "# only BatchLinear, Matmul" in lines


def test_two_clients_in_one_directory_have_a_log_each(tmp_path) -> None:
    first = Client(tmp_path)
    first.call()
    lines_when(tmp_path / "zmq_performance.log", lambda lines: numbers(lines) == [1])
    second = Client(tmp_path)
    second.call()
    second.call()
    out, _ = second.end()
    first.end()
    assert numbers((tmp_path / "zmq_performance.log").read_text().splitlines()) == [1]
    assert numbers((tmp_path / "zmq_performance_2.log").read_text().splitlines()) == [1, 2]
    assert "zmq_performance.log is written by another client" in out


@pytest.mark.skipif(os.getuid() == 0, reason="root writes everywhere")
def test_an_unwritable_log_costs_one_line_and_nothing_else(tmp_path) -> None:
    (tmp_path / "zmq_performance.log").write_text("ZeroMQ Performance Log\n")
    (tmp_path / "zmq_performance.log").chmod(0o444)
    check_unwritable(tmp_path)


def test_a_pipe_in_the_logs_place_costs_one_line_and_nothing_else(tmp_path) -> None:
    client = Client(tmp_path)
    (tmp_path / "logs").mkdir()
    os.mkfifo(tmp_path / "zmq_performance.log")
    for _ in range(3):
        client.call()
    out, err = client.end()
    assert err.count("performance log: OSError") == 1, err
    (run_file,) = (tmp_path / "logs").glob("perf_records_*.jsonl")
    assert run_file.read_text().count('"kind":"rpc_call"') == 3


def test_on_a_full_disk_the_calls_go_on_and_what_is_lost_is_counted(tmp_path) -> None:
    full = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
    client = Client(tmp_path, script=full + RECORD)
    for _ in range(10):
        client.call()
    end_s = time.monotonic() + WAIT_S  # a batch counts as written when all of it is: the first one is small
    while not any(b'"rpc_call"' in file.read_bytes() for file in (tmp_path / "logs").glob("perf_records_*")):
        assert time.monotonic() < end_s
        time.sleep(0.01)
    for _ in range(190):
        client.call()
    out, err = client.end()
    assert client.process.returncode == 0
    assert err.count("run file: OSError") == 1, err
    lost = re.search(r"(\d+) of 200 records are missing from .*: File too large", err)
    assert lost is not None, err
    (run_file,) = (tmp_path / "logs").glob("perf_records_*.jsonl")
    assert run_file.read_text().count('"kind":"rpc_call"') >= 200 - int(lost[1]) > 0


def check_unwritable(tmp_path: Path) -> None:
    client = Client(tmp_path)
    for _ in range(3):
        client.call()
    out, err = client.end()
    assert err.count("performance log: PermissionError") == 1, err
    (run_file,) = (tmp_path / "logs").glob("perf_records_*.jsonl")
    assert run_file.read_text().count('"kind":"rpc_call"') == 3
