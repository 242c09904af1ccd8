"""Client and server on two machines, whose monotonic clocks differ: nothing that is measured mixes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from flagscale_perf.analysis.instrument import clocks_of
from flagscale_perf.analysis.job import open_session
from flagscale_perf.rpc.analysis.instrument import read_calls
from flagscale_perf.rpc.analysis.report import CallsReport
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.store.run_file import RunFile
from tests.machines import AHEAD_S, Machine, two_machines

REPO = Path(__file__).parents[2]
PATH = f"{REPO}/examples/tee_gpu:{REPO}"
SERVE = """
import sys
from flagscale_perf.rpc.facts import SERVER, RpcFacts
from tensor_rpc.options import ServerOptions
from flagscale_perf.rpc.recording import RecordingOptions, RpcRecorder
from tensor_rpc.server import Server
facts = RpcFacts(role=SERVER, transport="TCP", endpoint=sys.argv[1])
recorder = RpcRecorder.start(facts, RecordingOptions("served", log_file=None))
methods = {"Echo": lambda request: request.arrays}
server = Server(methods, ServerOptions(endpoint=sys.argv[1], allow_remote=True), recorder.observe)
print("ready", flush=True)
server.serve()
recorder.close("completed", 60)
"""
CALL = """
import sys
from tensor_rpc.wire import Array
from flagscale_perf.rpc.dtypes import DType
from tensor_rpc.facts import facts_of
from tensor_rpc.options import ClientOptions
from flagscale_perf.rpc.recording import RecordingOptions, RpcRecorder
from tensor_rpc.client import Client
options, recorder = ClientOptions(endpoint=sys.argv[1], allow_remote=True), None
with Client.connect(options, lambda record: recorder.observe(record)) as client:
    with RpcRecorder.start(facts_of(client.hello), RecordingOptions("called")) as recorder:
        data = memoryview(bytes(4096))
        for _ in range(50):
            client.call("Echo", [Array(DType.FLOAT32, (1024,), data)])
"""
CALLS = 50


def started(machine: Machine, cwd: Path, script: str, endpoint: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        machine.command(sys.executable, "-c", script, endpoint),
        cwd=cwd,
        text=True,
        env=os.environ | {"PYTHONPATH": PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ended(process: subprocess.Popen[str]) -> None:
    out, err = process.communicate(timeout=100)
    assert (process.returncode, err) == (0, ""), out


def path_in(directory: Path) -> Path:
    (path,) = directory.glob("perf_records_*.jsonl")
    return path


def report_of(directory: Path) -> CallsReport:
    return read_calls(open_session(path_in(directory)))


def test_calls_over_machines_are_measured_by_the_clock_of_who_measures(tmp_path: Path) -> None:
    endpoint = "tcp://10.0.0.2:5555"
    with two_machines(tmp_path) as (one, other):
        server = started(other, tmp_path, SERVE, endpoint)
        assert server.stdout is not None and server.stdout.readline() == "ready\n"
        ended(started(one, tmp_path, CALL, endpoint))
        other.end(server)
        ended(server)
    called, served = report_of(tmp_path / "called"), report_of(tmp_path / "served")
    begun = [RunFile(path_in(tmp_path / name)).header.start_mono_ns for name in ("called", "served")]
    assert abs(begun[1] - begun[0]) > (AHEAD_S - 100_000) * NS_PER_S  # so much would be seen in any mixture
    assert (called.overall.calls, called.served.methods, called.facts.server_pid) == (CALLS, {}, None)
    assert served.served.methods["Echo"].calls == CALLS
    records = [record for record in RunFile(path_in(tmp_path / "called")) if isinstance(record, CallRecord)]
    for call in records:
        assert call.queue_ns is None  # it would take both clocks
        stages = (call.serialize_ns, call.send_ns, call.wait_ns, call.server_ns, call.receive_ns)
        assert all(0 <= (stage or 0) <= call.total_ns for stage in (*stages, call.deserialize_ns))
    clocks = clocks_of(open_session(path_in(tmp_path / name)) for name in ("called", "served"))
    (line,) = clocks.lines()
    assert line.endswith(f"({2 * CALLS} messages both ways)")
    move, uncertainty_ns = clocks.mover("node1"), clocks.uncertainty_ns("node1", begun[1])
    assert move is not None and uncertainty_ns is not None
    assert abs(begun[1] - AHEAD_S * NS_PER_S - move(begun[1])) <= uncertainty_ns < NS_PER_S
    queued_ns = served.served.methods["Echo"].parts_ns[0]
    assert 0 <= queued_ns <= served.served.methods["Echo"].total_ns
