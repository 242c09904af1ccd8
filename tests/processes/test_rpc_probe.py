"""The example of a probe, as its README runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import zmq

from flagscale_perf.analysis.job import open_session
from flagscale_perf.rpc.analysis.instrument import read_calls
from flagscale_perf.rpc.analysis.report import CallsReport
from flagscale_perf.rpc.probe import Probe
from flagscale_perf.rpc.recording import RecordingOptions

REPO = Path(__file__).parents[2]
EXAMPLE = REPO / "examples/rpc_probe"


def start(directory: Path, *words: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(REPO)}
    return subprocess.Popen(
        [sys.executable, *words], cwd=directory, env=environment, text=True, stderr=subprocess.PIPE
    )


def test_three_lines_record_a_clients_calls(tmp_path) -> None:
    endpoint = f"ipc://{tmp_path}/probe.ipc"
    server = start(tmp_path, str(EXAMPLE / "server.py"), endpoint)
    client = start(tmp_path, str(EXAMPLE / "client.py"), endpoint, "100")
    assert (client.communicate(timeout=120)[1], client.returncode) == ("", 0)
    assert (server.communicate(timeout=120)[1], server.returncode) == ("", 0)
    found = read_calls(open_session(tmp_path / "zmq_performance.log"))
    assert {name: totals.calls for name, totals in found.totals.methods.items()} == {"Sum": 100, "Stop": 1}
    assert found.facts.receive_has_wait and found.facts.transport == "IPC"
    assert found.source.state() == "completed"
    sums = found.totals.methods["Sum"]
    assert sums.sent_bytes / 100 > 27_000  # 10,000 numbers
    (run_file,) = (tmp_path / "logs/rpc").glob("perf_records_*.jsonl")
    assert read_calls(open_session(run_file)).overall.calls == 101


def test_it_has_as_many_lines_as_it_says() -> None:
    lines = (EXAMPLE / "client.py").read_text().splitlines()
    assert [line.split("# probe: ")[1] for line in lines if "# probe: " in line] == ["1", "2", "3"]


SERVER = """
import json, sys, time, zmq
numbers = json.dumps([0.1 * n for n in range(50_000)]).encode()
with zmq.Context() as context, context.socket(zmq.REP) as socket:
    socket.bind(sys.argv[1])
    while (what := socket.recv()) != b"stop":
        if what == b"sleep":
            time.sleep(0.02)
        socket.send(numbers if what == b"json" else what if len(what) > 9 else b"123456789")
    socket.send(b"")
"""


def recorded(tmp_path: Path, ask: Callable[[Probe, Callable[[bytes], bytes]], None]) -> CallsReport:
    """Calls of a real server, which may do everything that `SERVER` can."""
    endpoint = f"ipc://{tmp_path}/s.ipc"
    server = start(tmp_path, "-c", SERVER, endpoint)
    options = RecordingOptions(directory=str(tmp_path / "logs"), log_file=str(tmp_path / "z.log"))
    with zmq.Context() as context, context.socket(zmq.REQ) as socket, Probe.start(endpoint, options) as probe:
        probe.wrap(socket).connect(endpoint)

        def asked(what: bytes) -> bytes:
            socket.send(what)
            return socket.recv()

        asked(b"first")  # the server is there
        ask(probe, asked)
        asked(b"stop")
    assert server.communicate(timeout=120)[1] == ""
    return read_calls(open_session(next((tmp_path / "logs").glob("perf_records_*.jsonl"))))


def test_a_server_that_sleeps_is_told_from_one_of_large_arrays(tmp_path) -> None:
    def ask(probe: Probe, asked: Callable[[bytes], bytes]) -> None:
        for _ in range(20):
            with probe.call("score"):
                asked(b"sleep")
            with probe.call("ping"):
                asked(b"ping")

    report = recorded(tmp_path, ask)
    assert [one.name for one in report.findings] == ["server"]
    assert report.findings[0].title == "score waits for the server, not for its bytes"
    assert report.findings[0].cost_s is not None and report.findings[0].cost_s >= 0.3
    stages = dict(zip(("wait", "queue", "server"), report.overall.stages()[2:5], strict=True))
    assert all(one.took_ns is None and one.share is None for one in stages.values())
    assert "wait -, queue -, server -, receive 9" in (tmp_path / "z.log").read_text()


def test_numbers_made_of_text_are_named(tmp_path) -> None:
    def ask(probe: Probe, asked: Callable[[bytes], bytes]) -> None:
        for _ in range(10):
            with probe.call("floats"):
                assert len(json.loads(asked(b"json"))) == 50_000

    assert "deserialization" in [one.name for one in recorded(tmp_path, ask).findings]


def test_a_server_that_answers_at_once_is_no_finding(tmp_path) -> None:
    def ask(probe: Probe, asked: Callable[[bytes], bytes]) -> None:
        for _ in range(50):
            with probe.call("ping"):
                asked(b"ping")

    assert recorded(tmp_path, ask).findings == []
