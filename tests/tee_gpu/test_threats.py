"""What a hostile or broken peer does to a server, row by row of examples/tee_gpu/security.md. The server must
refuse it, say so, and go on serving others.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import random
import socket
import struct

import psutil
import pytest
from tensor_rpc import wire
from tensor_rpc.client import Client
from tensor_rpc.errors import InvalidMessage, Refused
from tensor_rpc.options import ClientOptions
from tensor_rpc.wire import Array

from flagscale_perf.rpc.dtypes import DType
from flagscale_perf.rpc.records import Status
from tests.tee_gpu.echo_server import METHODS, serving
from tests.tee_gpu.peer import Peer, wait_until

MIB = 2**20
LIMIT = 8 * MIB
FLOAT, BYTE = int(DType.FLOAT32), int(DType.UINT8)
FRAME, PACKED = int(wire.Place.FRAME), int(wire.Place.PACKED)


class Target:
    """A server in another process."""

    def __init__(self, process, endpoint):
        self.process = psutil.Process(process.pid)
        self.endpoint = endpoint
        with Client.connect(ClientOptions(endpoint)) as client:
            client.call("Echo")
        self.memory = self.process.memory_info().rss

    def serves(self) -> bool:
        """And has not grown by more than twice what one message may have."""
        with Client.connect(ClientOptions(self.endpoint)) as client:
            assert client.call("Echo") == []
        wait_until(lambda: self.process.memory_info().rss < self.memory + 2 * LIMIT)
        return True


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("rpc") / "rpc.ipc"
    options = {"max_message_bytes": LIMIT, "arena_bytes": 4 * MIB, "max_clients": 4}
    with serving(endpoint=f"ipc://{path}", **options) as (process, endpoint):
        yield Target(process, endpoint)


@pytest.fixture
def peer(server):
    with Peer(server.endpoint) as peer:
        yield peer
        peer.socket.send(wire.encode(wire.Bye()))
        assert server.serves()


@pytest.mark.parametrize("size", [16 * 2**30, 2**46, 2**63 - 1, LIMIT + 2**20])
def test_a_frame_that_claims_too_much_ends_the_connection(server, size):
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(60)
        raw.connect(server.endpoint.removeprefix("ipc://"))
        raw.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + bytes(32))
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
        raw.sendall(b"\x04" + bytes([len(ready)]) + ready)
        raw.sendall(b"\x02" + struct.pack(">Q", size) + bytes(1000))
        while raw.recv(4096):
            pass
    assert server.serves()


def test_a_message_above_the_limit_is_refused_on_either_side(server):
    with Client.connect(ClientOptions(server.endpoint)) as client:
        with pytest.raises(
            Refused, match=f"{LIMIT + 1} bytes of arrays in one message; at most {LIMIT} are allowed"
        ):
            client.call("Echo", [Array(DType.UINT8, (LIMIT + 1,), memoryview(bytes(LIMIT + 1)))])
        with pytest.raises(
            Refused, match=f"refused by the server: {LIMIT + 1} bytes of arrays in one message"
        ):
            client.call("Make", arguments={"bytes": LIMIT + 1})
        assert client.call("Echo") == []
    refused = pytest.raises(Refused, match="refused by the server: 1001 bytes of arrays")
    with Client.connect(ClientOptions(server.endpoint, max_message_bytes=1000)) as client, refused:
        client.call("Make", arguments={"bytes": 1001})


BOMBS = {
    "deep lists": b"\x91" * 60_000,
    "deep maps": b"\x81\xa1a" * 20_000,
    "empty maps": b"\xdd" + struct.pack(">I", 65_000) + b"\x80" * 65_000,
    "a list that claims 4 billion": b"\xdd\xff\xff\xff\xff",
    "bytes that claim 4 billion": b"\xc6\xff\xff\xff\xff",
    "an extension type": b"\xc7\x04\x01abcd",
    "nothing": b"",
    "a pickle": b"cbuiltins\nopen\n(S'owned'\nS'w'\ntR.",
    "another message": wire.encode(("Attack", 1)),
    "too long": b"\x80" * 65537,
    "text that is no text": wire.encode(("Greeting", 3, "little", 1, "", 1)).replace(
        b"little", b"litt\xff\xfe"
    ),
    "more fields": wire.encode(("Ping", 1, 2)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_header_that_is_a_bomb_is_refused(peer, name):
    peer.hello()
    answer = peer.ask([BOMBS[name]])
    assert isinstance(answer, wire.Failure) and answer.status == Status.INVALID
    assert "cannot be read" in answer.text or "at most 65536 are read" in answer.text


@pytest.mark.parametrize(
    "slot, offset, size",
    [(2, 0, 8), (65535, 0, 8), (0, 2 * MIB, 1), (0, 2 * MIB - 7, 8), (0, 2**53, 8), (1, 1, 2 * MIB)],
)
def test_an_array_outside_of_its_share_is_refused(peer, slot, offset, size):
    peer.hello(payload="shared")
    answer = peer.call([(BYTE, (size,), offset)], slot=slot)
    assert isinstance(answer, wire.Failure)
    assert answer.text in (
        f"slot {slot} of 2",
        f"an array of {size} bytes at {offset} of {2 * MIB} bytes of shared memory",
    )


def test_shared_memory_that_was_not_asked_for_is_refused(peer):
    assert peer.hello().requests is None
    assert "which this connection does not have" in peer.call([(BYTE, (8,), 0)]).text


def test_the_memory_cannot_be_resized_and_replies_cannot_be_written(server, peer):
    welcome = peer.hello(payload="shared")
    requests, replies = (
        os.open(f"/proc/{welcome.process}/fd/{memory.descriptor}", os.O_RDWR)
        for memory in (welcome.requests, welcome.replies)
    )
    size = welcome.requests.bytes
    for descriptor in (requests, replies):
        for other in (0, size // 2, 2 * size):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, other)
        with pytest.raises(PermissionError):
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    with pytest.raises(PermissionError):
        mmap.mmap(replies, size)
    with pytest.raises(PermissionError):
        os.pwrite(replies, b"x", 0)
    with mmap.mmap(requests, size) as mine, mmap.mmap(replies, size, prot=mmap.PROT_READ) as theirs:
        mine[:5] = b"hello"
        assert isinstance(peer.call([(BYTE, (5,), 0)]), wire.Reply)
        assert theirs[:5] == b"hello"
        for n in range(200):  # data that changes while it is read is only wrong data
            peer.socket.send(wire.encode(("Call", 2 + n, 0, 0, 0, [(FLOAT, (1000,), 0)], {})))
            mine[:4000] = bytes([n]) * 4000
            assert isinstance(wire.for_client(peer.socket.recv()), wire.Reply)
    os.close(requests)
    os.close(replies)


def test_memory_that_is_not_there_is_refused_before_it_is_taken(tmp_path, run_python):
    code = (
        "from tensor_rpc.options import ServerOptions\n"
        "from tensor_rpc.server import Server\n"
        f"Server({{}}, ServerOptions('ipc://{tmp_path}/x.ipc', arena_bytes=2**45))"
    )
    result = run_python("-c", code)
    assert "Refused: shared memory of 70368744177664 bytes, where" in result.stderr
    assert list(tmp_path.iterdir()) == []


LIES = {
    "a type that there is not": ([(99, (4,), FRAME)], b"0123"),
    "a type by name": ([("float32", (4,), FRAME)], b"0123"),
    "a type of many fields": ([("i4," * 20_000, (4,), FRAME)], b"0123"),
    "-1": ([(BYTE, (-1,), FRAME)], b"0123"),
    "two of -1": ([(BYTE, (-2, -2), FRAME)], b"0123"),
    "2**32": ([(BYTE, (2**32,), FRAME)], b"0123"),
    "a product of 2**64": ([(BYTE, (2**31, 2**31, 4), FRAME)], b""),
    "a fraction": ([(BYTE, (1.5,), FRAME)], b"01"),
    "many dimensions": ([(BYTE, (1,) * 9, FRAME)], b"0"),
    "more than the frame": ([(FLOAT, (2,), FRAME)], b"0123"),
    "less than the frame": ([(FLOAT, (1,), FRAME)], b"01234567"),
    "no frame": ([(FLOAT, (1,), FRAME)],),
    "a frame too many": ([(FLOAT, (1,), FRAME)], b"0123", b"0123"),
    "a hundred frames too many": ([], *[b"0123"] * 100),
    "one frame twice": ([(FLOAT, (1,), FRAME), (FLOAT, (1,), FRAME)], b"0123"),
    "a place that there is not": ([(BYTE, (1,), -3)],),
    "packed arrays that are none": ([(BYTE, (1,), PACKED)], b"\x91\x01"),
    "a packed bomb": ([(BYTE, (1,), PACKED)], b"\x91" * 5000),
    "packed arrays in two frames": ([(BYTE, (1,), PACKED)], b"\x91\xc4\x01a", b"\x90"),
    "too many arrays": ([(BYTE, (0,), FRAME)] * 65,),
    "arguments that are no mapping": ((),),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_about_an_array_is_refused(peer, name):
    peer.hello()
    parts, *frames = LIES[name]
    changed = {"arguments": []} if "arguments" in name else {}
    answer = peer.call(parts, *frames, **changed)
    assert isinstance(answer, wire.Failure) and answer.status in (Status.INVALID, Status.REFUSED)
    assert answer.text
    assert isinstance(peer.call(), wire.Reply)  # the connection goes on


def test_a_call_out_of_turn_is_refused(peer):
    peer.hello()
    assert isinstance(peer.call(), wire.Reply)
    assert peer.call(number=1).text == "call 1 after call 1"
    assert peer.call(method=77).text == f"method 77 of {len(METHODS)}"


def test_who_has_not_said_hello_is_refused(server):
    with Peer(server.endpoint) as stranger:
        assert "connect again" in stranger.call().text
    assert server.serves()


def test_another_version_is_refused_at_hello(server):
    said = pytest.raises(AssertionError, match="use the same version on both sides")
    with Peer(server.endpoint) as peer, said:
        peer.hello(protocol=99)


def test_ten_thousand_damaged_messages(server):
    chance = random.Random(14)
    with Peer(server.endpoint) as peer:
        peer.hello(payload="shared")
        for n in range(10_000):
            arguments = {"step": 1, "of": [1, 2]}
            parts = [(FLOAT, (2, 3), 64), (BYTE, (8,), FRAME)]
            good = wire.encode(("Call", n + 1, 0, 0, 0, parts, arguments))
            peer.socket.send_multipart(_damaged(good, chance, n))
            peer.socket.recv_multipart()  # each is answered
        peer.socket.send(wire.encode(wire.Bye()))
    assert server.serves()


def _damaged(good: bytes, chance: random.Random, n: int) -> list[bytes]:
    message = bytearray(good)
    for _ in range(chance.choice((1, 1, 1, 2, 5, 20))):
        message[chance.randrange(len(message))] = chance.randrange(256)
    if n % 5 == 0:
        del message[chance.randrange(len(message)) :]
    try:
        said = wire.for_server(bytes(message))
    except InvalidMessage:
        said = None
    calls_other = isinstance(said, wire.Call) and said.method != 0  # which may end, or wait
    if calls_other or isinstance(said, wire.Bye):
        message = bytearray(good)
    frames = [chance.randbytes(chance.randrange(64)) for _ in range(chance.choice((0, 0, 0, 1, 3)))]
    return [bytes(message), *frames]
