"""Ends, restarts and deaf peers: who is gone is noticed, what was theirs is freed, nothing is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import pytest
import torch
import zmq

from flagscale_perf.rpc.arrays import DType
from flagscale_perf.rpc.errors import InvalidMessage, PeerGone, Refused
from flagscale_perf.rpc.options import ClientOptions
from flagscale_perf.rpc.transport import header
from flagscale_perf.rpc.transport.client import Client
from flagscale_perf.rpc.transport.header import Kind, Prefix
from flagscale_perf.rpc.transport.tensors import array_of
from tests.rpc_peer import Peer, wait_until
from tests.rpc_server import serving

MIB = 2**20
CALLER = """
import json, sys
from flagscale_perf.rpc.transport.client import Client
from flagscale_perf.rpc.options import ClientOptions
client = Client.connect(ClientOptions(endpoint=sys.argv[1], **json.loads(sys.argv[2])))
print(client.hello.client, flush=True)
client.call("Wait", arguments={"seconds": float(sys.argv[3])})
"""
HELLO = header.message(
    Prefix(Kind.HELLO, 0, 0, 0, 0, 0, 0, 0),
    header.encode(header.HelloBody(header.PROTOCOL, header.BYTE_ORDER, 2**20, False, False, False, None, "")),
)


def mapped(process: psutil.Process) -> int:
    """How many pieces of our shared memory a process has."""
    return sum("flagscale_perf_rpc" in each.path for each in process.memory_maps(grouped=False))


def descriptors(process: psutil.Process) -> int:
    return process.num_fds()


@pytest.fixture
def endpoint(tmp_path):
    return f"ipc://{tmp_path}/rpc.ipc"


# --- row 12: a client that dies in a call


@pytest.mark.parametrize("way", ['{"control": "unix"}', '{"payload": "shared"}'])
def test_what_a_killed_client_had_is_freed(endpoint, way):
    with serving(endpoint=endpoint, arena_bytes=4 * MIB) as (server, _):
        process = psutil.Process(server.pid)
        before = descriptors(process), mapped(process)
        caller = subprocess.Popen(
            [sys.executable, "-c", CALLER, endpoint, way, "0.2"], stdout=subprocess.PIPE
        )
        assert caller.stdout.readline() == b"1\n"
        assert mapped(process) == before[1] + 2
        caller.kill()
        caller.wait()
        caller.stdout.close()
        wait_until(lambda: (descriptors(process), mapped(process)) == before)
        with Client.connect(ClientOptions(endpoint=endpoint)) as client:
            assert client.hello.client == 2


def test_who_asks_for_memory_and_leaves_makes_none_pile_up(endpoint):
    with serving(endpoint=endpoint, arena_bytes=4 * MIB) as (server, _), Peer(endpoint) as peer:
        process = psutil.Process(server.pid)
        welcome = peer.hello()
        before = mapped(process)
        body = header.encode(header.AttachBody(welcome.client, welcome.token))
        message = header.message(Prefix(Kind.ATTACH, 0, peer.epoch, 0, 0, 0, 0, 0), body)
        for _ in range(5):
            process.suspend()
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as side:
                side.connect(welcome.socket)
                side.send(message)
            process.resume()
            assert peer.call(())[0].kind == Kind.REPLY
        wait_until(lambda: mapped(process) == before)
        assert peer.attach(welcome).arena_bytes == 4 * MIB
        assert mapped(process) == before + 2


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
            assert client.call("Echo").arrays == []
            with pytest.raises(Refused, match="1 clients are connected already; raise max_clients"):
                Client.connect(ClientOptions(endpoint=endpoint))
            assert client.call("Echo").arrays == []


# --- row 13: a server that dies


@pytest.mark.parametrize("way", [{"control": "unix"}, {"payload": "shared"}, {"payload": "frames"}])
def test_a_server_that_is_killed_is_noticed_long_before_the_deadline(endpoint, tmp_path, way):
    with serving(endpoint=endpoint) as (server, _):
        with Client.connect(ClientOptions(endpoint=endpoint, timeout_s=3600, **way)) as client:
            pending = client.submit("Wait", arguments={"seconds": 3600})
            server.kill()
            with pytest.raises(PeerGone):
                pending.result()
        assert list(tmp_path.iterdir()) == []  # the client removes what the server could not


def test_a_socket_that_nobody_serves_is_no_server(endpoint, tmp_path):
    with serving(endpoint=endpoint) as (server, _):
        server.kill()
        server.wait()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["rpc.ipc", "rpc.ipc.lock", "rpc.ipc.unix"]
        with pytest.raises(PeerGone, match="no server answered at .* within 0.2 s: .*; start it, or correct"):
            Client.connect(ClientOptions(endpoint=endpoint, connect_timeout_s=0.2))
    with serving(endpoint=endpoint), Client.connect(ClientOptions(endpoint=endpoint)) as client:
        assert client.call("Echo").arrays == []
    wait_until(lambda: list(tmp_path.iterdir()) == [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_end_leaves_nothing(endpoint, tmp_path, number):
    with serving(endpoint=endpoint) as (server, _):
        with Client.connect(ClientOptions(endpoint=endpoint)):
            server.send_signal(number)
            assert server.wait(60) == 0
        assert list(tmp_path.iterdir()) == []


# --- row 14: a server that is started again


@pytest.mark.parametrize("way", [{"control": "unix"}, {"payload": "shared"}, {"payload": "frames"}])
def test_a_restarted_server_answers_no_old_client(endpoint, way):
    with serving(endpoint=endpoint) as (server, _):
        client = Client.connect(ClientOptions(endpoint=endpoint, **way))
        server.kill()
        server.wait()
        with serving(endpoint=endpoint):
            with pytest.raises(PeerGone):
                client.call("Echo")
            with client, Client.connect(ClientOptions(endpoint=endpoint)) as again:
                assert again.call("Echo").arrays == []


def test_a_restarted_server_refuses_a_message_that_reaches_it(endpoint):
    with Peer(endpoint) as peer:
        with serving(endpoint=endpoint) as (server, _):
            peer.hello()
            old = peer.epoch
            server.kill()
        with serving(endpoint=endpoint):
            prefix, text = peer.call(())
            assert text == "this server was started after the client met it: connect again"
            assert prefix.epoch != old


# --- row 15: clients that do not listen


def test_a_client_that_takes_no_replies_costs_no_memory(endpoint):
    with serving(endpoint=endpoint, max_message_bytes=4 * MIB) as (server, _):
        process = psutil.Process(server.pid)
        with Client.connect(ClientOptions(endpoint=endpoint)) as other, Peer(endpoint) as deaf:
            deaf.hello()
            before = process.memory_info().rss
            body = header.encode(((), {"bytes": MIB}))
            deaf.socket.sndtimeo = 2000
            for n in range(500):
                try:
                    deaf.send(Prefix(Kind.CALL, 0, deaf.epoch, n + 1, 4, 0, 0, 0), body)
                except zmq.Again:
                    break
            assert other.call("Echo").arrays == []
            assert process.memory_info().rss < before + 64 * MIB  # 500 MiB of replies were asked for


def test_a_client_that_takes_no_replies_on_the_unix_socket_is_dropped(endpoint):
    connecting = ClientOptions(endpoint=endpoint)
    with serving(endpoint=endpoint), Client.connect(connecting) as other, Peer(endpoint) as deaf:
        deaf.attach(deaf.hello(unix=True))
        body = header.encode(((), {"bytes": 4000}))
        with pytest.raises(OSError):
            for n in range(100_000):
                deaf.side.send(header.message(Prefix(Kind.CALL, 0, deaf.epoch, n + 1, 4, 0, 0, 0), body))
        assert other.call("Echo").arrays == []


@pytest.mark.parametrize("said", [b"x", HELLO], ids=["one byte", "hello"])
def test_strangers_that_take_no_answers_keep_nobody_waiting(endpoint, said):
    """A blocking answer takes 250 ms: to a hundredth of these it would be longer than the call may take."""
    with serving(endpoint=endpoint), zmq.Context() as context, context.socket(zmq.DEALER) as deaf:
        deaf.linger, deaf.rcvhwm, deaf.sndhwm = 0, 1, 0
        deaf.connect(endpoint)
        for _ in range(10_000):
            deaf.send(said)
        with Client.connect(ClientOptions(endpoint=endpoint, connect_timeout_s=20, timeout_s=20)) as other:
            assert other.call("Echo").arrays == []


# --- row 16: an end with a message that was not sent


def test_a_client_ends_although_its_message_was_never_taken(endpoint, run_python):
    code = """
import sys
import tempfile
from flagscale_perf.rpc.transport.client import Client
from flagscale_perf.rpc.errors import CallTimeout
from flagscale_perf.rpc.options import ClientOptions
from flagscale_perf.rpc.arrays import Array, DType
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
    """A thread that answers one HELLO after another with these fields of WELCOME."""

    def serve():
        with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
            socket.bind(endpoint)
            for changed in answers:
                who, _ = socket.recv_multipart()
                said = {
                    "protocol": header.PROTOCOL, "byte_order": header.BYTE_ORDER, "client": 1, "process": 1,
                    "device": "cpu", "dtype": "", "model": "", "description": "{}", "methods": ("Echo",),
                    "max_message_bytes": 100, "arena_bytes": 0, "slots": 1, "token": b"", "socket": "",
                    "same_clock": False,
                }  # fmt: skip
                body = header.encode(header.WelcomeBody(**(said | changed)))
                socket.send_multipart([who, header.message(Prefix(Kind.WELCOME, 0, 5, 0, 0, 0, 0, 0), body)])
            socket.close(1000)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_a_server_that_says_what_cannot_be_is_refused(endpoint):
    said = {
        "the server speaks protocol 99": {"protocol": 99},
        f"the server speaks protocol {header.PROTOCOL}, big endian": {"byte_order": "big"},
        "that cannot be printed": {"device": "cpu\x1b[2J"},
        "a method named 'Echo.n1 Forged": {"methods": ("Echo\n1 Forged",)},
        "Expected `int` <= 8": {"slots": 9},
        "the server has the model 'other'": {"model": "other"},
    }
    thread = lying(endpoint, said.values())
    for text in said:
        with pytest.raises((Refused, InvalidMessage), match=text.replace(".", ".*")):
            Client.connect(ClientOptions(endpoint=endpoint, payload="frames", model=""))
    thread.join()


# --- row 19: a third process that comes and goes


def test_another_client_that_comes_and_goes_takes_nothing_along(endpoint, run_python):
    before = set(os.listdir("/dev/shm"))
    with (
        serving(endpoint=endpoint),
        Client.connect(ClientOptions(endpoint=endpoint, control="unix")) as client,
    ):
        sent = array_of(torch.arange(100_000))
        for _ in range(2):
            assert run_python("-c", CALLER, endpoint, "{}", "0").returncode == 0
            assert bytes(client.call("Echo", [sent]).arrays[0].data) == bytes(sent.data)
        assert set(os.listdir("/dev/shm")) == before


# --- bytes that are changed on a sealed connection


def test_a_changed_byte_of_a_sealed_array_is_noticed(endpoint, tmp_path):
    with serving(endpoint=endpoint), Client.connect(ClientOptions(endpoint=endpoint, seal=True)) as client:
        plain = torch.full((4096,), 3, dtype=torch.uint8)
        pending = client.submit("Echo", [array_of(plain)])
        memory = client._session.shared.arenas[0]._memory
        assert bytes(plain.numpy()[:64]) not in memory[:8192]
        assert bytes(pending.result().arrays[0].data) == bytes(plain.numpy())
        assert bytes(plain.numpy()[:64]) not in client._session.shared.arenas[1]._memory[:8192]
        go_on = tmp_path / "go_on"
        waiting = client.submit("Wait", arguments={"until": str(go_on)})
        changed = client.submit("Echo", [array_of(plain)])
        memory[client.hello.arena_bytes // 2 + 5] ^= 1
        go_on.touch()
        assert waiting.result().arrays == []
        with pytest.raises(InvalidMessage, match="an encrypted array that was changed on its way"):
            changed.result()


def test_a_sealed_connection_takes_nothing_in_the_clear(endpoint):
    with serving(endpoint=endpoint), Peer(endpoint) as peer:
        peer.attach(peer.hello(seal=True))
        part = (int(DType.UINT8), (4,), int(header.Place.INLINE), 0)
        assert peer.call((part,), tail=b"0123")[1] == "an array that is not encrypted, on a sealed connection"


# --- rows 10 and 11: one server a path, and one user


def test_a_second_server_at_a_live_endpoint_is_refused(endpoint, run_python):
    with (
        serving(endpoint=endpoint) as (server, _),
        Client.connect(ClientOptions(endpoint=endpoint)) as client,
    ):
        for where in (endpoint, f"{endpoint[:6]}/{endpoint[6:]}"):
            result = run_python("-m", "tests.rpc_server", f'{{"endpoint": "{where}"}}')
            assert f"Refused: process {server.pid} listens at" in result.stderr
        assert client.call("Echo").arrays == []


def test_a_second_server_at_a_live_port_is_refused(run_python):
    with serving(endpoint="tcp://127.0.0.1:*") as (_, endpoint):
        result = run_python("-m", "tests.rpc_server", f'{{"endpoint": "{endpoint}"}}')
        assert f"Refused: cannot listen at {endpoint}: Address already in use" in result.stderr
        with Client.connect(ClientOptions(endpoint=endpoint)) as client:
            assert client.hello.transport == "TCP" and client.hello.payload == "frames"
            assert client.call("Echo").arrays == []
        for options in ({"payload": "shared"}, {"control": "unix"}, {"seal": True}):
            with pytest.raises(Refused, match="need an ipc endpoint"):
                Client.connect(ClientOptions(endpoint=endpoint, **options))


@pytest.fixture
def short_path():
    """Of a directory, for the 107 bytes that the path of a socket may have."""
    with tempfile.TemporaryDirectory(prefix="rpc_") as path:
        yield Path(path)


def test_a_path_too_long_for_a_socket_is_refused_with_what_to_change(tmp_path, short_path, run_python):
    runtime = tmp_path / ("long" * 25)
    runtime.mkdir()
    short_path.chmod(0o1777)  # so the unix socket goes to the other directory
    endpoint = f"ipc://{short_path}/rpc.ipc"
    result = run_python(
        "-m", "tests.rpc_server", f'{{"endpoint": "{endpoint}"}}', env={"XDG_RUNTIME_DIR": str(runtime)}
    )
    assert "AF_UNIX path too long; set XDG_RUNTIME_DIR to another directory" in result.stderr


def test_the_requirements_path_in_a_directory_that_all_may_write(short_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    shared = short_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    with serving(endpoint=f"ipc://{shared}/tsqp_gpu_server.ipc") as (_, endpoint):
        assert (shared / "tsqp_gpu_server.ipc").stat().st_mode & 0o777 == 0o700
        with Client.connect(ClientOptions(endpoint=endpoint, control="unix")) as client:
            assert client.call("Echo").arrays == []
    assert list(shared.iterdir()) == list((short_path / "flagscale_perf").iterdir()) == []


AS_ANOTHER_USER = """
import os, socket, sys
os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
kind = socket.SOCK_SEQPACKET if sys.argv[1].endswith("unix") else socket.SOCK_STREAM
with socket.socket(socket.AF_UNIX, kind) as s:
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
@pytest.mark.parametrize("name", ["rpc.ipc", "rpc.ipc.unix"])
def test_another_user_is_turned_away(name):
    said = []
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as directory,
        serving(endpoint=f"ipc://{directory}/rpc.ipc"),
    ):
        os.chmod(directory, 0o711)  # so that it is the socket's turn to refuse
        for mode, user in ((0o700, 65534), (0o777, 65534), (0o777, 0)):
            os.chmod(f"{directory}/{name}", mode)
            command = [sys.executable, "-c", AS_ANOTHER_USER, f"{directory}/{name}", str(user)]
            said.append(subprocess.run(command, capture_output=True, text=True).stdout.strip())
        with Client.connect(ClientOptions(endpoint=f"ipc://{directory}/rpc.ipc")) as client:
            assert client.call("Echo").arrays == []
    assert said == ["Permission denied", "turned away", "answered"]
