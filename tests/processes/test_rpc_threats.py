"""What a hostile or broken peer does to a server, row by row of docs/rpc_security.md. The server must refuse
it, say so, and go on serving others.
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

from flagscale_perf.rpc.arrays import Array, DType
from flagscale_perf.rpc.errors import Refused
from flagscale_perf.rpc.options import ClientOptions
from flagscale_perf.rpc.records import Status
from flagscale_perf.rpc.transport import header
from flagscale_perf.rpc.transport.client import Client
from flagscale_perf.rpc.transport.header import Kind, Place, Prefix
from tests.rpc_peer import Peer, failure_of, wait_until
from tests.rpc_server import METHODS, serving

MIB = 2**20
LIMIT = 8 * MIB
FLOAT, BYTE = int(DType.FLOAT32), int(DType.UINT8)
INLINE, FRAME, SHARED = int(Place.INLINE), int(Place.FRAME), int(Place.SHARED)


class Target:
    """A server in another process."""

    def __init__(self, process, endpoint):
        self.process = psutil.Process(process.pid)
        self.endpoint = endpoint
        with Client.connect(ClientOptions(endpoint=endpoint)) as client:
            client.call("Echo")
        self.memory = self.process.memory_info().rss

    def serves(self) -> bool:
        """And has not grown by more than twice what one message may have."""
        with Client.connect(ClientOptions(endpoint=self.endpoint)) as client:
            assert client.call("Echo", arguments={"alive": True}).arguments == {"alive": True}
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
    assert server.serves()


# --- row 1: a frame that claims 16 GB


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


# --- row 2: an honest message above the limit


def test_a_message_above_the_limit_is_refused_on_either_side(server):
    with Client.connect(ClientOptions(endpoint=server.endpoint)) as client:
        with pytest.raises(
            Refused, match=f"{LIMIT + 1} bytes of arrays in one message; at most {LIMIT} are allowed"
        ):
            client.call("Echo", [Array(DType.UINT8, (LIMIT + 1,), memoryview(bytes(LIMIT + 1)))])
        with pytest.raises(
            Refused, match=f"refused by the server: {LIMIT + 1} bytes of arrays in one message"
        ):
            client.call("Make", arguments={"bytes": LIMIT + 1})
        assert client.call("Echo").arrays == []
    options = ClientOptions(endpoint=server.endpoint, max_message_bytes=1000)
    refused = pytest.raises(Refused, match="refused by the server: 1001 bytes of arrays")
    with Client.connect(options) as client, refused:
        client.call("Make", arguments={"bytes": 1001})


# --- rows 3 and 4: bombs, and pickles

BOMBS = {
    "deep lists": b"\x91" * 60_000,
    "deep maps": b"\x81\xa1a" * 20_000,
    "empty maps": b"\x92\x90\xdd" + struct.pack(">I", 65_000) + b"\x80" * 65_000,
    "empty maps as arguments": b"\x92\x90\x81\xa1a\xdd" + struct.pack(">I", 65_000) + b"\x80" * 65_000,
    "a list that claims 4 billion": b"\x92\x90\x81\xa1a\xdd\xff\xff\xff\xff",
    "bytes that claim 4 billion": b"\x92\x90\x81\xa1a\xc6\xff\xff\xff\xff",
    "an extension type": b"\x92\x90\x81\xa1a\xc7\x04\x01abcd",
    "nothing": b"",
    "too many arrays": b"\x92\xdc" + struct.pack(">H", 65) + b"\x94\x01\x91\x00\x00\x00" * 65 + b"\x80",
    "more fields": b"\x93\x90\x80\x00",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_header_that_is_a_bomb_is_refused(peer, name):
    peer.hello()
    peer.send(Prefix(Kind.CALL, 0, peer.epoch, 1, 0, 0, 0, 0), BOMBS[name][:65536])
    prefix, first, _ = peer.receive()
    assert (prefix.kind, prefix.code) == (Kind.FAILURE, Status.INVALID)
    assert failure_of(prefix, first).startswith("a CALL that cannot be read")


def test_a_header_above_its_limit_is_refused(peer):
    peer.hello()
    peer.send(Prefix(Kind.CALL, 0, peer.epoch, 1, 0, 0, 0, 0), b"\x80" * 65537)
    prefix, first, _ = peer.receive()
    there = header.PREFIX_BYTES + 65537
    assert failure_of(prefix, first) == f"a header that claims 65537 bytes in a message of {there}"


def test_a_pickle_is_not_opened(peer, tmp_path):
    bomb = f"cbuiltins\nopen\n(S'{tmp_path}/owned'\nS'w'\ntR.".encode()  # who loads it makes a file
    peer.socket.send(bomb)
    assert peer.receive()[0].code == Status.INVALID
    peer.hello()
    prefix, _ = peer.call(((BYTE, (len(bomb),), INLINE, 0),), {"data": "x"}, tail=bomb)
    assert prefix.kind == Kind.REPLY  # bytes like any others
    assert not (tmp_path / "owned").exists()


# --- row 5: somebody else's memory


def test_no_memory_without_the_token_of_this_connection(server, peer):
    welcome = peer.hello()
    with Peer(server.endpoint) as other:
        theirs = other.hello()
        wrong = [(theirs.client, welcome.token), (welcome.client, b"\0" * 16), (99, welcome.token)]
        for client, token in [*wrong, (welcome.client, b"")]:
            with Peer(server.endpoint) as thief:
                thief.epoch = peer.epoch
                first, descriptors = thief.attach_with(welcome.socket, client, token)
                assert descriptors == []
                assert (
                    failure_of(header.read_prefix(first), first)
                    == "no client with this number and token has said HELLO"
                )
    peer.attach(welcome)
    with Peer(server.endpoint) as thief:
        thief.epoch = peer.epoch
        first, descriptors = thief.attach_with(welcome.socket, welcome.client, welcome.token)
        assert descriptors == []
        assert "has its unix socket already" in failure_of(header.read_prefix(first), first)


@pytest.mark.parametrize(
    "slot, offset, size",
    [(2, 0, 8), (65535, 0, 8), (0, 2 * MIB, 1), (0, 2 * MIB - 7, 8), (0, 2**53, 8), (1, 1, 2 * MIB)],
)
def test_an_array_outside_of_its_share_is_refused(peer, slot, offset, size):
    peer.attach(peer.hello())
    prefix, text = peer.call(((BYTE, (size,), SHARED, offset),), slot=slot)
    assert prefix.kind == Kind.FAILURE
    assert text in (
        f"slot {slot} of 2",
        f"an array of {size} bytes at {offset} of {2 * MIB} bytes of shared memory",
    )


def test_shared_memory_that_is_not_attached_is_refused(peer):
    peer.hello()
    assert peer.call(((BYTE, (8,), SHARED, 0),))[1].startswith(
        "an array in shared memory, which this connection does"
    )


# --- row 6: the memory taken away


def test_the_memory_cannot_be_resized_and_replies_cannot_be_written(server, peer):
    size = peer.attach(peer.hello()).arena_bytes
    requests, replies = peer.descriptors
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
    again = os.open(f"/proc/self/fd/{replies}", os.O_RDWR)
    with pytest.raises(PermissionError):
        mmap.mmap(again, size)
    os.close(again)
    with mmap.mmap(requests, size) as mine, mmap.mmap(replies, size, prot=mmap.PROT_READ) as theirs:
        mine[:5] = b"hello"
        assert peer.call(((BYTE, (5,), SHARED, 0),))[0].kind == Kind.REPLY
        assert len(theirs) == size
    assert server.serves()


# --- row 7: memory that there is not


def test_memory_that_is_not_there_is_refused_before_it_is_taken(tmp_path, run_python):
    code = (
        "from flagscale_perf.rpc.options import ServerOptions\n"
        "from flagscale_perf.rpc.transport.server import Server\n"
        f"Server({{}}, ServerOptions(endpoint='ipc://{tmp_path}/x.ipc', arena_bytes=2**45))"
    )
    result = run_python("-c", code)
    assert "Refused: arena_bytes=35184372088832 needs" in result.stderr
    assert list(tmp_path.iterdir()) == []


# --- row 8: data that changes while it is read


def test_data_that_changes_under_the_server_is_only_wrong_data(server, peer):
    size = peer.attach(peer.hello()).arena_bytes
    with mmap.mmap(peer.descriptors[0], size) as memory:
        for n in range(200):
            peer.calls += 1
            prefix = Prefix(Kind.CALL, 0, peer.epoch, peer.calls, 0, 0, 0, 0)
            peer.send(prefix, header.encode((((FLOAT, (1000,), SHARED, 0),), {})))
            memory[:4000] = bytes([n]) * 4000  # while it works on it
            answer, first, frames = peer.receive()
            assert answer.kind == Kind.REPLY
            (part,) = header.CALL.decode(first, answer).parts
            assert part.shape == (1000,)


# --- row 9: lies

LIES = {
    "a type that there is not": (((99, (4,), FRAME, 0),), (b"0123",)),
    "a type by name": ((("float32", (4,), FRAME, 0),), (b"0123",)),
    "a type of many fields": ((("i4," * 20_000, (4,), FRAME, 0),), (b"0123",)),
    "an object": ((("O", (1,), FRAME, 0),), (b"0" * 8,)),
    "-1": (((BYTE, (-1,), FRAME, 0),), (b"0123",)),
    "two of -1": (((BYTE, (-2, -2), FRAME, 0),), (b"0123",)),
    "2**32": (((BYTE, (2**32,), FRAME, 0),), (b"0123",)),
    "a product of 2**64": (((BYTE, (2**31, 2**31, 4), FRAME, 0),), (b"",)),
    "a product of 0 by 2**62": (((BYTE, (2**31, 2**31, 4, 1), FRAME, 0),), (b"",)),
    "a fraction": (((BYTE, (1.5,), FRAME, 0),), (b"01",)),
    "many dimensions": (((BYTE, (1,) * 9, FRAME, 0),), (b"0",)),
    "more than the frame": (((FLOAT, (2,), FRAME, 0),), (b"0123",)),
    "less than the frame": (((FLOAT, (1,), FRAME, 0),), (b"01234567",)),
    "no frame": (((FLOAT, (1,), FRAME, 0),), ()),
    "a frame too many": (((FLOAT, (1,), FRAME, 0),), (b"0123", b"0123")),
    "a hundred frames too many": ((), (b"0123",) * 100),
    "one frame twice": (((FLOAT, (1,), FRAME, 0), (FLOAT, (1,), FRAME, 0)), (b"0123",)),
    "a negative offset": (((BYTE, (1,), INLINE, -1),), ()),
    "a place that there is not": (((BYTE, (1,), 3, 0),), ()),
    "inline bytes that are not there": (((BYTE, (1,), INLINE, 0),), ()),
    "inline bytes far away": (((BYTE, (1,), INLINE, 2**53),), ()),
    "arguments that are no mapping": (((),), ()),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_about_an_array_is_refused(peer, name):
    peer.hello()
    parts, frames = LIES[name]
    prefix, text = peer.call(parts, frames=frames)
    assert prefix.kind == Kind.FAILURE and prefix.code in (Status.INVALID, Status.REFUSED) and text
    assert peer.call(())[0].kind == Kind.REPLY  # the connection goes on


def test_a_call_out_of_turn_is_refused(peer):
    peer.hello()
    assert peer.call(())[0].kind == Kind.REPLY
    assert peer.call((), call=1)[1] == "call 1 after call 1"
    assert peer.call((), code=77)[1] == f"method 77 of {len(METHODS)}"
    assert "started after the client met it" in peer.call((), epoch=5)[1]
    assert "of kind 4 at this point" in peer.call((), kind=4)[1]


def test_who_has_not_said_hello_is_refused(server):
    with Peer(server.endpoint) as stranger:
        assert "connect again" in stranger.call(())[1]
    assert server.serves()


# --- rows 17 and 18: another version; names that are none


@pytest.mark.parametrize("changed", [{"protocol": 99}, {"byte_order": "big"}])
def test_another_version_is_refused_at_hello(server, changed):
    with (
        Peer(server.endpoint) as peer,
        pytest.raises(AssertionError, match="use the same version on both sides"),
    ):
        peer.hello(**changed)


@pytest.mark.parametrize("kind", [Kind.HELLO, Kind.PING, Kind.SETTLE, Kind.CALL])
def test_text_that_is_no_text_is_refused(peer, kind):
    peer.hello()
    bodies = {
        Kind.HELLO: header.encode(header.HelloBody(1, "little", 1, True, False, False, None, "little")),
        Kind.SETTLE: header.encode((1, "little")),
    }
    body = bodies.get(kind, header.encode(((), {"little": 1}))).replace(b"little", b"litt\xff\xfe")
    peer.send(Prefix(kind, 0, peer.epoch, 1, 0, 0, 0, 0), body)
    prefix, first, _ = peer.receive()
    assert prefix.code == Status.INVALID
    assert failure_of(prefix, first).startswith(f"a {kind.name} that cannot be read")


def test_another_wire_format_is_refused(server):
    with Peer(server.endpoint) as peer:
        message = bytearray(header.message(Prefix(Kind.HELLO, 0, 0, 0, 0, 0, 0, 0), b""))
        message[2] = 9
        peer.socket.send(bytes(message))
        prefix, first, _ = peer.receive()
        said = f"protocol 9; this side speaks {header.PROTOCOL}: use the same version on both"
        assert failure_of(prefix, first) == said


# --- 10,000 headers at random


def test_ten_thousand_damaged_messages(server):
    chance = random.Random(14)
    with Peer(server.endpoint) as peer:
        peer.attach(peer.hello())
        body = header.encode(
            (((FLOAT, (2, 3), SHARED, 64), (BYTE, (8,), INLINE, 0)), {"step": 1, "of": [1, 2]})
        )
        prefix = Prefix(Kind.CALL, 0, peer.epoch, 1, 0, 0, 0, 0)
        good = header.message(prefix, body)
        good += bytes(header.padding(len(good))) + b"12345678"
        for n in range(10_000):
            peer.socket.send_multipart(_damaged(good, chance, n))
            peer.receive()  # each is answered
    assert server.serves()


def _damaged(good: bytes, chance: random.Random, n: int) -> list[bytes]:
    message = bytearray(good)
    message[16:24] = struct.pack("<Q", n + 1)
    start = 0 if n % 8 == 0 else 24 if n % 2 else 48
    for _ in range(chance.choice((1, 1, 1, 2, 5, 20))):
        message[chance.randrange(start, len(message))] = chance.randrange(256)
    if message[3] == Kind.BYE:  # which is not answered
        message[3] = Kind.CALL
    if message[24] == list(METHODS).index("Die"):
        message[24] = 0
    if n % 5 == 0:
        del message[chance.randrange(len(message)) :]
    frames = [chance.randbytes(chance.randrange(64)) for _ in range(chance.choice((0, 0, 0, 1, 3)))]
    return [bytes(message), *frames]
