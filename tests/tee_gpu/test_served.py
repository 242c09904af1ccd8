"""Client and server records meet in the client's run file; a server may have a session of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.rpc.analysis.instrument import read_calls
from flagscale_perf.rpc.analysis.report import CallsReport
from flagscale_perf.rpc.records import CallRecord, ServedRecord
from flagscale_perf.rpc.stages import stage_times
from flagscale_perf.store.run_file import RunFile
from tests.tee_gpu.peer import wait_until

REPO = Path(__file__).parents[2]
EXAMPLE = REPO / "examples/tee_gpu"
SERVE = """
import os, sys, time
from flagscale_perf.rpc.facts import SERVER, RpcFacts, transport_of
from tensor_rpc.options import ServerOptions
from flagscale_perf.rpc.peers import ServedRings
from flagscale_perf.rpc.recording import RecordingOptions, RpcRecorder
from tensor_rpc.server import Server
endpoint, own = sys.argv[1], sys.argv[2] == "own"
if own:
    facts = RpcFacts(role=SERVER, transport=transport_of(endpoint), endpoint=endpoint)
    observer = RpcRecorder.start(facts, RecordingOptions("served", log_file=None))
else:
    observer = ServedRings(os.getpid())
def work(request):
    open("begun", "w").close()
    time.sleep(0.02)
    open("worked", "w").close()
    return []
methods = {"Echo": lambda request: request.arrays, "Work": work}
server = Server(methods, ServerOptions(endpoint=endpoint), observer.observe)
print("ready", flush=True)
server.serve()
observer.close(*(["completed", 60] if own else []))
"""
CALL = """
import sys
from tensor_rpc.wire import Array
from flagscale_perf.rpc.dtypes import DType
from tensor_rpc.client import Client
from tensor_rpc.facts import facts_of
from tensor_rpc.options import ClientOptions
from flagscale_perf.rpc.recording import RecordingOptions, RpcRecorder
recorder = None
with Client.connect(ClientOptions(endpoint=sys.argv[1]), lambda record: recorder.observe(record)) as client:
    facts = facts_of(client.hello)
    with RpcRecorder.start(facts, RecordingOptions(sys.argv[2], log_file=sys.argv[2] + ".log")) as recorder:
        data = memoryview(bytes(4096))
        for _ in range(int(sys.argv[3])):
            client.call("Echo", [Array(DType.FLOAT32, (1024,), data)])
"""
STOPPED_IN_SEND = """
import os, signal, sys, time
from tensor_rpc.client import Client
from tensor_rpc.facts import facts_of
from tensor_rpc.options import ClientOptions
from flagscale_perf.rpc.recording import RecordingOptions, RpcRecorder
recorder = None
options = ClientOptions(endpoint=sys.argv[1])
with Client.connect(options, lambda record: recorder.observe(record)) as client:
    with RpcRecorder.start(facts_of(client.hello), RecordingOptions("client", None)) as recorder:
        send = client._link.send
        def stopped(*message):
            send(*message)
            while not os.path.exists("begun"):
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGSTOP)
        client._link.send = stopped
        client.call("Work")
        client._link.send = send
        client.call("Echo")
"""
CALLS = 50


def start(directory: Path, script: str, *words: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": f"{EXAMPLE}:{REPO}"}
    return subprocess.Popen(
        [sys.executable, "-c", script, *words],
        cwd=directory,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def server_at(directory: Path, endpoint: str, own: bool = False) -> subprocess.Popen[str]:
    server = start(directory, SERVE, endpoint, "own" if own else "for clients")
    assert server.stdout is not None and server.stdout.readline() == "ready\n"
    return server


def stop(server: subprocess.Popen[str]) -> None:
    server.send_signal(signal.SIGTERM)
    assert (server.communicate(timeout=120)[1], server.returncode) == ("", 0)


def done(client: subprocess.Popen[str]) -> None:
    assert (client.communicate(timeout=120)[1], client.returncode) == ("", 0)


def run_in(directory: Path) -> Path:
    (path,) = directory.glob("perf_records_*.jsonl")
    return path


@pytest.fixture
def endpoint(tmp_path) -> str:
    return f"ipc://{tmp_path}/served.ipc"


def test_each_client_has_the_servers_records_of_its_own_calls(tmp_path, endpoint) -> None:
    server = server_at(tmp_path, endpoint)
    clients = [start(tmp_path, CALL, endpoint, name, str(CALLS)) for name in ("one", "two")]
    for client in clients:
        done(client)
    stop(server)
    seen = []
    for name in ("one", "two"):
        records = list(RunFile(run_in(tmp_path / name)))
        calls = {record.number: record for record in records if isinstance(record, CallRecord)}
        served = {record.call: record for record in records if isinstance(record, ServedRecord)}
        assert set(calls) == set(range(1, CALLS + 1))
        assert set(served) == set(calls)
        assert {calls[number].client for number in calls} == {served[number].client for number in served}
        seen.append(served[1].client)
        for number, record in served.items():
            assert (record.method, record.received_bytes) == ("Echo", calls[number].sent_bytes)
            assert record.compute_ns < calls[number].total_ns
    assert len(set(seen)) == 2
    found: CallsReport = read_calls(open_session(run_in(tmp_path / "one")))
    assert found.overall.calls == found.served.methods["Echo"].calls == CALLS


def test_a_server_may_have_a_session_of_its_own(tmp_path, endpoint) -> None:
    server = server_at(tmp_path, endpoint, own=True)
    done(start(tmp_path, CALL, endpoint, "client", str(CALLS)))
    stop(server)
    found = read_calls(open_session(run_in(tmp_path / "served")))
    assert (found.overall.calls, found.served.methods["Echo"].calls) == (0, CALLS)
    assert found.facts.role == "server"
    assert read_calls(open_session(run_in(tmp_path / "client"))).overall.calls == CALLS


def test_a_client_stopped_inside_send_books_the_servers_time_as_the_servers(tmp_path, endpoint) -> None:
    server = server_at(tmp_path, endpoint)
    client = start(tmp_path, STOPPED_IN_SEND, endpoint)
    _, state = os.waitpid(client.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(state)
    wait_until((tmp_path / "worked").exists)
    client.send_signal(signal.SIGCONT)
    done(client)
    stop(server)
    records = list(RunFile(run_in(tmp_path / "client")))
    call = next(record for record in records if isinstance(record, CallRecord))
    served = next(record for record in records if isinstance(record, ServedRecord))
    print(f"send {call.send_ns}, server {call.server_ns}; the server itself {served.compute_ns}")
    assert served.compute_ns <= (call.server_ns or 0) <= served.total_ns
    assert call.start_ns + call.serialize_ns + call.send_ns <= served.start_ns + served.queue_ns
    assert sum(stage_times(call)[:-1]) <= call.total_ns
    assert min(stage_times(call)) >= 0
