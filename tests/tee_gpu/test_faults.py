"""Ends, restarts and deaf peers: who is gone is noticed, what was theirs is freed, nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import pytest
import torch
import zmq
from tensor_rpc import wire
from tensor_rpc.client import Client
from tensor_rpc.errors import InvalidMessage, PeerGone, Refused
from tensor_rpc.options import ClientOptions
from tensor_rpc.tensors import array_of

from tests.tee_gpu.echo_server import serving
from tests.tee_gpu.peer import Peer, wait_until

MIB = 2**20
CALLER = """
import json, sys
from tensor_rpc.client import Client
from tensor_rpc.options import ClientOptions
client = Client.connect(ClientOptions(endpoint=sys.argv[1], **json.loads(sys.argv[2])))
print(client.hello.server.client, flush=True)
client.call("Wait", arguments={"seconds": float(sys.argv[3])})
"""
HELLO = wire.encode(wire.Greeting(wire.PROTOCOL, "frames", 2**20, "", 0))


def mapped(process: psutil.Process) -> int:
    """How many pieces of our shared memory a process has."""
    return sum("tensor_rpc" in each.path for each in process.memory_maps(grouped=False))


def descriptors(process: psutil.Process) -> int:
    return process.num_fds()


@pytest.fixture
def endpoint(tmp_path):
    return f"ipc://{tmp_path}/rpc.ipc"


# --- row 12: a client that dies in a call


def test_what_a_killed_client_had_is_freed(endpoint):
    with serving(endpoint=endpoint, arena_bytes=4 * MIB) as (server, _):
        process = psutil.Process(server.pid)
        before = descriptors(process), mapped(process)
        caller = subprocess.Popen(
            [sys.executable, "-c", CALLER, endpoint, "{}", "0.2"], stdout=subprocess.PIPE
        )
        assert caller.stdout.readline() == b"1\n"
        assert mapped(process) == before[1] + 2
        caller.kill()
        caller.wait()
        caller.stdout.close()
        wait_until(lambda: (descriptors(process), mapped(process)) == before)
        with Client.connect(ClientOptions(endpoint=endpoint)) as client:
            assert client.hello.server.client == 2


def test_a_killed_client_makes_room_for_the_next(endpoint):
    with serving(endpoint=endpoint, max_clients=1):
        for _ in range(3):
            caller = subprocess.Popen(
                [sys.executable, "-c", CALLER, endpoint, '{"payload": "frames"}', "0"], stdout=subprocess.PIPE
            )
            assert caller.stdout.readline() != b""
            caller.kill()
            caller.wait()
            caller.stdout.close()
        with Client.connect(ClientOptions(endpoint=endpoint)) as client:
            assert client.call("Echo") == []
            with pytest.raises(Refused, match="1 clients are connected already; raise max_clients"):
                Client.connect(ClientOptions(endpoint=endpoint))
            assert client.call("Echo") == []


# --- row 13: a server that dies


@pytest.mark.parametrize("way", [{"payload": "shared"}, {"payload": "frames"}])
def test_a_server_that_is_killed_is_noticed_long_before_the_deadline(endpoint, way):
    options = ClientOptions(endpoint=endpoint, timeout_s=3600, **way)
    with serving(endpoint=endpoint) as (server, _), Client.connect(options) as client:
        pending = client.submit("Wait", arguments={"seconds": 3600})
        server.kill()
        with pytest.raises(PeerGone):
            pending.result()


def test_a_socket_that_nobody_serves_is_no_server(endpoint, tmp_path):
    with serving(endpoint=endpoint) as (server, _):
        server.kill()
        server.wait()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["rpc.ipc", "rpc.ipc.lock"]
        with pytest.raises(PeerGone, match="no server answered at .* within 0.2 s: .*; start it, or correct"):
            Client.connect(ClientOptions(endpoint=endpoint, connect_timeout_s=0.2))
    with serving(endpoint=endpoint), Client.connect(ClientOptions(endpoint=endpoint)) as client:
        assert client.call("Echo") == []
    wait_until(lambda: list(tmp_path.iterdir()) == [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_end_leaves_nothing(endpoint, tmp_path, number):
    with serving(endpoint=endpoint) as (server, _):
        with Client.connect(ClientOptions(endpoint=endpoint)):
            server.send_signal(number)
            assert server.wait(60) == 0
        assert list(tmp_path.iterdir()) == []


# --- row 14: a server that is started again


@pytest.mark.parametrize("way", [{"payload": "shared"}, {"payload": "frames"}])
def test_a_restarted_server_answers_no_old_client(endpoint, way):
    with serving(endpoint=endpoint) as (server, _):
        client = Client.connect(ClientOptions(endpoint=endpoint, **way))
        server.kill()
        server.wait()
        with serving(endpoint=endpoint):
            with pytest.raises(PeerGone):
                client.call("Echo")
            with client, Client.connect(ClientOptions(endpoint=endpoint)) as again:
                assert again.call("Echo") == []


def test_a_restarted_server_refuses_a_message_that_reaches_it(endpoint):
    with Peer(endpoint) as peer:
        with serving(endpoint=endpoint) as (server, _):
            old = peer.hello().epoch
            server.kill()
        with serving(endpoint=endpoint):
            assert peer.call().text == "this server was started after the client met it: connect again"
            assert peer.hello().epoch != old


# --- row 15: clients that do not listen


def test_a_client_that_takes_no_replies_costs_no_memory(endpoint):
    with serving(endpoint=endpoint, max_message_bytes=4 * MIB) as (server, _):
        process = psutil.Process(server.pid)
        with Client.connect(ClientOptions(endpoint=endpoint)) as other, Peer(endpoint) as deaf:
            deaf.hello()
            before = process.memory_info().rss
            deaf.socket.sndtimeo = 2000
            for n in range(500):
                try:
                    deaf.socket.send(wire.encode(("Call", n + 1, 4, 0, 0, [], {"bytes": MIB})))
                except zmq.Again:
                    break
            assert other.call("Echo") == []
            assert process.memory_info().rss < before + 64 * MIB  # 500 MiB of replies were asked for


@pytest.mark.parametrize("said", [b"x", HELLO], ids=["one byte", "hello"])
def test_strangers_that_take_no_answers_keep_nobody_waiting(endpoint, said):
    """A blocking answer takes 250 ms: to a hundredth of these it would be longer than the call may take."""
    with serving(endpoint=endpoint), zmq.Context() as context, context.socket(zmq.DEALER) as deaf:
        deaf.linger, deaf.rcvhwm, deaf.sndhwm = 0, 1, 0
        deaf.connect(endpoint)
        for _ in range(10_000):
            deaf.send(said)
        with Client.connect(ClientOptions(endpoint=endpoint, connect_timeout_s=20, timeout_s=20)) as other:
            assert other.call("Echo") == []


# --- row 16: an end with a message that was not sent


def test_a_client_ends_although_its_message_was_never_taken(endpoint, run_python):
    code = """
import sys
import tempfile
from tensor_rpc.client import Client
from tensor_rpc.errors import CallTimeout
from tensor_rpc.options import ClientOptions
from tensor_rpc.wire import Array
from flagscale_perf.rpc.dtypes import DType
import os, signal
client = Client.connect(ClientOptions(endpoint=sys.argv[1], payload="frames"))
os.kill(client.hello.process, signal.SIGSTOP)
big = Array(DType.UINT8, (2**27,), memoryview(bytes(2**27)))
try:
    client.call("Echo", [big], timeout_s=0.1)
except CallTimeout:
    print("timeout")
client.close()
print("closed")
"""
    with serving(endpoint=endpoint) as (server, _):
        result = run_python("-c", code, endpoint, timeout_s=120)
        assert result.stdout == "timeout\nclosed\n", result.stderr
        server.send_signal(signal.SIGCONT)


# --- row 17 and 18, from the other side: a server that lies


def lying(endpoint, answers):
    """A thread that answers one greeting after another with these fields of `Welcome`."""

    def serve():
        with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
            socket.bind(endpoint)
            for changed in answers:
                who, _ = socket.recv_multipart()
                said = {
                    "protocol": wire.PROTOCOL,
                    "client": 1,
                    "epoch": 1,
                    "process": 1,
                    "clock": "",
                    "device": "cpu",
                    "dtype": "",
                    "description": "{}",
                    "methods": ("Echo",),
                    "max_message_bytes": 100,
                    "slots": 1,
                    "requests": None,
                    "replies": None,
                }
                socket.send_multipart([who, wire.encode(("Welcome", *(said | changed).values()))])
            socket.close(1000)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_a_server_that_says_what_cannot_be_is_refused(endpoint):
    said = {
        "the server speaks another protocol": {"protocol": 99},
        "that cannot be printed": {"device": "cpu\x1b[2J"},
        "Expected `str` matching regex": {"methods": ("Echo\n1 Forged",)},
        "Expected `int` <= 8": {"slots": 9},
    }
    thread = lying(endpoint, said.values())
    for text in said:
        with pytest.raises((Refused, InvalidMessage), match=text.replace(".", ".*")):
            Client.connect(ClientOptions(endpoint=endpoint, payload="frames"))
    thread.join()


# --- row 19: a third process that comes and goes


def test_another_client_that_comes_and_goes_takes_nothing_along(endpoint, run_python):
    before = set(os.listdir("/dev/shm"))
    with (
        serving(endpoint=endpoint),
        Client.connect(ClientOptions(endpoint=endpoint)) as client,
    ):
        sent = array_of(torch.arange(100_000))
        for _ in range(2):
            assert run_python("-c", CALLER, endpoint, "{}", "0").returncode == 0
            assert bytes(client.call("Echo", [sent])[0].data) == bytes(sent.data)
        assert set(os.listdir("/dev/shm")) == before


# --- rows 10 and 11: one server a path, and one user


def test_a_second_server_at_a_live_endpoint_is_refused(endpoint, run_python):
    with (
        serving(endpoint=endpoint) as (server, _),
        Client.connect(ClientOptions(endpoint=endpoint)) as client,
    ):
        for where in (endpoint, f"{endpoint[:6]}/{endpoint[6:]}"):
            result = run_python("-m", "tests.tee_gpu.echo_server", f'{{"endpoint": "{where}"}}')
            assert f"Refused: process {server.pid} listens at" in result.stderr
        assert client.call("Echo") == []


def test_a_second_server_at_a_live_port_is_refused(run_python):
    with serving(endpoint="tcp://127.0.0.1:*") as (_, endpoint):
        result = run_python("-m", "tests.tee_gpu.echo_server", f'{{"endpoint": "{endpoint}"}}')
        assert f"Refused: cannot listen at {endpoint}: Address already in use" in result.stderr
        with Client.connect(ClientOptions(endpoint=endpoint)) as client:
            assert client.hello.transport == "TCP" and client.hello.payload == "frames"
            assert client.call("Echo") == []
        with pytest.raises(Refused, match="needs an ipc endpoint"):
            Client.connect(ClientOptions(endpoint=endpoint, payload="shared"))


def test_the_requirements_path_in_a_directory_that_all_may_write():
    with tempfile.TemporaryDirectory(prefix="rpc_") as path:  # the path of a socket may have 107 bytes
        shared = Path(path)
        shared.chmod(0o1777)
        with serving(endpoint=f"ipc://{shared}/tsqp_gpu_server.ipc") as (_, endpoint):
            assert (shared / "tsqp_gpu_server.ipc").stat().st_mode & 0o777 == 0o700
            with Client.connect(ClientOptions(endpoint=endpoint)) as client:
                assert client.call("Echo") == []
        assert list(shared.iterdir()) == []


AS_ANOTHER_USER = """
import os, socket, sys
os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
with socket.socket(socket.AF_UNIX) as s:
    s.settimeout(60)
    try:
        s.connect(sys.argv[1])
        s.send(b"\\xff" + bytes(8) + b"\\x7f\\x03\\x00NULL" + bytes(48))
        received = s.recv(4096)
        print("answered" if received else "turned away")
    except OSError as error:
        print("turned away" if isinstance(error, (BrokenPipeError, ConnectionResetError)) else error.strerror)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
def test_another_user_is_turned_away():
    said = []
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as directory,
        serving(endpoint=f"ipc://{directory}/rpc.ipc"),
    ):
        os.chmod(directory, 0o711)  # so that it is the socket's turn to refuse
        for mode, user in ((0o700, 65534), (0o777, 65534), (0o777, 0)):
            os.chmod(f"{directory}/rpc.ipc", mode)
            command = [sys.executable, "-c", AS_ANOTHER_USER, f"{directory}/rpc.ipc", str(user)]
            said.append(subprocess.run(command, capture_output=True, text=True).stdout.strip())
        with Client.connect(ClientOptions(endpoint=f"ipc://{directory}/rpc.ipc")) as client:
            assert client.call("Echo") == []
    assert said == ["Permission denied", "turned away", "answered"]


# --- containers: the same machine, and other process ids

GREETED = """
import sys
from tensor_rpc.client import Client
from tensor_rpc.options import ClientOptions
with Client.connect(ClientOptions(endpoint=sys.argv[1])) as client:
    print(client.hello.payload, client.hello.process, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs the right to make namespaces of processes")
def test_a_client_in_another_container_is_not_taken_for_the_process_of_its_number_here(endpoint):
    """It is process 1 there; the server would wait for the end of its own process 1."""
    unshared = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", GREETED, endpoint]
    with serving(endpoint=endpoint, max_clients=1):
        with subprocess.Popen(unshared, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout.readline() == "frames None\n"
            client.kill()

        def is_free() -> bool:
            try:
                with Client.connect(ClientOptions(endpoint=endpoint)) as next_one:
                    return next_one.call("Echo") == []
            except Refused:
                return False

        wait_until(is_free)
