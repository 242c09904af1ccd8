"""The handshake of client and server: identity, limits, transports, and the sizes at which each is best."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass, field

from flagscale_perf.rpc.arrays import Array, DType
from flagscale_perf.rpc.errors import CallTimeout, InvalidMessage, PeerGone, Refused, RemoteFailure, RpcError
from flagscale_perf.rpc.options import METHOD, ClientOptions, Hello
from flagscale_perf.rpc.records import Status
from flagscale_perf.rpc.transport import header
from flagscale_perf.rpc.transport.arena import Arena, open_arena
from flagscale_perf.rpc.transport.endpoint import check_owner, path_of, transport_of
from flagscale_perf.rpc.transport.header import Kind, Prefix
from flagscale_perf.rpc.transport.link_unix import UnixLink
from flagscale_perf.rpc.transport.link_zeromq import ClientLink
from flagscale_perf.rpc.transport.packing import Packed, Sizes, Slot, first_frame, pack
from flagscale_perf.spine.clock import boot_id
from flagscale_perf.spine.packages import missing

PINGS = 9
TRIES = 5
CLEARLY = 0.9  # smaller differences are within the noise of measurements

MEASURED_SIZES = (1024, 4096, 16384, 65536, 262144, 1048576)
NEVER = 2**53


@dataclass
class Shared:
    """The shared memory of a connection, and its slots.

    Attributes:
        requests, replies: the slots of calls, and those of what comes back.
    """

    arenas: list[Arena] = field(default_factory=list)
    requests: list[Slot] = field(default_factory=list)
    replies: list[Slot] = field(default_factory=list)

    def close(self) -> None:
        """The memory is freed with the last array in it."""
        for arena in self.arenas:
            arena.close()


def seal_slots(shared: Shared, key: bytes) -> None:
    """Switches the slots to ciphertext only. Raises PerfError if the package for it is missing."""
    try:
        from flagscale_perf.rpc.transport.seal import REPLY, REQUEST, SealedSlot
    except ImportError as error:
        raise missing("cryptography", error, "seal=True") from None

    shared.requests = [SealedSlot(arena_slot, key, REQUEST) for arena_slot in shared.arenas[0].slots]
    shared.replies = [SealedSlot(arena_slot, key, REPLY) for arena_slot in shared.arenas[1].slots]


class Session:
    """A connection during the handshake, and afterwards what calls need of it.

    Attributes:
        link: what carries calls.
        welcome: what the server said.
        shared: its shared memory, without slots where there is none.
        sizes: where arrays go.
    """

    def __init__(self, options: ClientOptions, endpoint: str) -> None:
        self.options = options
        self._endpoint = endpoint
        self._begun_ns = time.monotonic_ns()
        self._deadline_ns = self._begun_ns + int(options.connect_timeout_s * 1e9)
        self.transport = transport_of(endpoint)
        self._check_wishes()
        self.epoch = 0
        self.shared = Shared()
        self._side: UnixLink | None = None
        self._wait_for_file()
        self._zeromq = ClientLink(endpoint, options.max_message_bytes)
        self.link: ClientLink | UnixLink = self._zeromq

    def _check_wishes(self) -> None:
        options = self.options
        if options.payload == "msgpack":
            raise Refused("payload 'msgpack' is that of rpc.costs.baseline; write auto, frames or shared")
        local_only = (options.payload == "shared", options.control == "unix", options.seal)
        if self.transport != "IPC" and any(local_only):
            raise Refused(
                f"payload={options.payload!r}, control={options.control!r}, seal={options.seal} over "
                f"{self._endpoint}: shared memory, the unix socket and sealing need an ipc endpoint"
            )
        if options.payload == "frames" and (options.control == "unix" or options.seal):
            raise Refused("payload 'frames' goes over ZeroMQ only: write payload='shared' or leave it out")

    def _wait_for_file(self) -> None:
        path = path_of(self._endpoint)
        while path is not None and not check_owner(self._endpoint):
            if time.monotonic_ns() > self._deadline_ns:
                raise PeerGone(self._nobody(f"there is no {path}"))
            time.sleep(0.01)

    def _nobody(self, why: str) -> str:
        waited = self.options.connect_timeout_s
        found = f"no server answered at {self._endpoint} within {waited} s: {why}"
        return f"{found}; start it, or correct the endpoint"

    def greet(self) -> Hello:
        """Raises `RpcError`."""
        options = self.options
        wants_shared = options.payload != "frames" and self.transport == "IPC"
        body = header.HelloBody(
            header.PROTOCOL, header.BYTE_ORDER, options.max_message_bytes, wants_shared,
            options.control == "unix", options.seal, options.model, boot_id() or "",
        )  # fmt: skip
        try:
            prefix, first = self._exchange(Kind.HELLO, header.encode(body), Kind.WELCOME)
        except CallTimeout:
            raise PeerGone(self._nobody("the socket is there, and nothing speaks this protocol")) from None
        self.welcome = welcome = header.WELCOME.decode(first, prefix)
        self._check(welcome)
        self.epoch = prefix.epoch
        self._zeromq.greeted = True
        if wants_shared or options.control == "unix":
            self._attach(welcome)
        self.sizes = Sizes(0, 0, self.link.carries_frames and not options.seal, welcome.max_message_bytes)
        self.sizes = self._measured_sizes()
        latency = self._latency()
        settle = header.encode(
            header.SettleBody(max(0, self.sizes.inline_bytes), self.sizes.arena_from_bytes)
        )
        self._exchange(Kind.SETTLE, settle, Kind.SETTLE)
        return self._hello(welcome, latency)

    def _check(self, welcome: header.WelcomeBody) -> None:
        if welcome.protocol != header.PROTOCOL or welcome.byte_order != header.BYTE_ORDER:
            raise Refused(
                f"the server speaks protocol {welcome.protocol}, {welcome.byte_order} endian; this client "
                f"{header.PROTOCOL}, {header.BYTE_ORDER} endian: use the same version on both sides"
            )
        for method in welcome.methods:
            if not METHOD.fullmatch(method):
                raise InvalidMessage(f"the server has a method named {method!r}, which is not a valid name")
        if not (welcome.device + welcome.dtype + welcome.model).isprintable():
            raise InvalidMessage("the server names a device, dtype or model that cannot be printed")
        if self.options.model not in (None, welcome.model):
            raise Refused(f"the server has the model {welcome.model!r}, not {self.options.model!r}")

    def _hello(self, welcome: header.WelcomeBody, latency_ns: int) -> Hello:
        process = welcome.process if welcome.same_clock else None
        return Hello(
            self._endpoint, self.transport, "shared" if self.shared.requests else "frames", self.link.name,
            welcome.device, welcome.dtype, welcome.model, welcome.description, welcome.methods,
            welcome.max_message_bytes, self._arena_bytes if self.shared.requests else 0, welcome.slots,
            self.epoch, welcome.client, process, latency_ns, self.sizes.inline_bytes,
            self.sizes.arena_from_bytes, time.monotonic_ns() - self._begun_ns,
        )  # fmt: skip

    def _exchange(
        self, kind: Kind, body: bytes, wanted: Kind, packed: Packed | None = None
    ) -> tuple[Prefix, bytes | memoryview]:
        """Sends a message that is not a call and returns the reply."""
        size = len(body) if packed is None else packed.body_bytes
        prefix = header.pack_prefix(Prefix(kind, size, self.epoch, 0, 0, 0, 0, 0))
        first = prefix + body if packed is None else first_frame(prefix, packed)
        self.link.send(first, packed.frames if packed else [], self._deadline_ns)
        while True:
            message = self.link.receive(self._deadline_ns)
            answer = header.read_prefix(message.first)
            if answer.kind == Kind.FAILURE:
                raise error_of("the connection", answer, message.first)
            if answer.kind == wanted:
                return answer, message.first

    # --- the unix socket and the shared memory

    def _attach(self, welcome: header.WelcomeBody) -> None:
        try:
            self._side = side = UnixLink.connect(welcome.socket)
            body = header.encode(header.AttachBody(welcome.client, welcome.token))
            side.send(
                header.message(Prefix(Kind.ATTACH, 0, self.epoch, 0, 0, 0, 0, 0), body), [], self._deadline_ns
            )
            first, descriptors = side.receive_descriptors(2, self._deadline_ns)
            self._map(first, descriptors, welcome)
        except RpcError:
            if self.options.payload == "shared" or self.options.control == "unix" or self.options.seal:
                raise
            return  # "auto": frames do as well
        if self.options.control == "unix":
            self.link = side

    def _map(self, first: bytes, descriptors: list[int], welcome: header.WelcomeBody) -> None:
        try:
            prefix = header.read_prefix(first)
            if prefix.kind != Kind.ATTACHED:
                raise error_of("the connection", prefix, first)
            body = header.ATTACHED.decode(first, prefix)
            self._arena_bytes = body.arena_bytes
            if not body.arena_bytes:
                if self.options.payload == "shared" or self.options.seal:
                    raise Refused("the server has no shared memory: start it with arena_bytes above 0")
                return
            if len(descriptors) != 2:
                raise InvalidMessage(f"{len(descriptors)} descriptors, where two were to come")
            while descriptors:
                arena = open_arena(descriptors[0], body.arena_bytes, welcome.slots, not self.shared.arenas)
                descriptors.pop(0)
                self.shared.arenas.append(arena)
                arena.close_descriptor()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self.shared.requests = list(self.shared.arenas[0].slots)
        self.shared.replies = list(self.shared.arenas[1].slots)
        if self.options.seal:
            seal_slots(self.shared, body.key)

    # --- what is measured

    def _latency(self) -> int:
        return int(statistics.median(self._timed(header.EMPTY_BODY, None) for _ in range(PINGS)))

    def _timed(self, body: bytes, packed: Packed | None) -> int:
        begun = time.monotonic_ns()
        self._exchange(Kind.PING, body, Kind.PING, packed)
        return time.monotonic_ns() - begun

    def _measured_sizes(self) -> Sizes:
        options, base = self.options, self.sizes
        if options.seal:
            return base._replace(inline_bytes=-1, arena_from_bytes=0)
        inline, arena = options.inline_bytes, options.arena_from_bytes
        if inline is None or arena is None:
            measured = self._measure()
            inline = _reach(measured) if inline is None else inline
            arena = _start(measured) if arena is None else arena
        return base._replace(inline_bytes=min(inline, header.MOST_INLINE_BYTES), arena_from_bytes=arena)

    def _measure(self) -> list[tuple[int, int, int | None, int | None]]:
        """For each size the cost inline, as a frame and in shared memory: the best of several."""
        slot = self.shared.requests[0] if self.shared.requests else None
        rows = []
        for size in MEASURED_SIZES:
            if size > self.welcome.max_message_bytes or (slot is None and not self.sizes.frames):
                break
            data = Array(DType.UINT8, (size,), memoryview(bytes(size)))
            inline = self._best(data, self.sizes._replace(inline_bytes=size, arena_from_bytes=NEVER), None)
            frames = self.sizes._replace(inline_bytes=-1, arena_from_bytes=NEVER)
            frame = self._best(data, frames, None) if self.sizes.frames else None
            fits = slot is not None and size <= self._arena_bytes // self.welcome.slots
            shared = self._best(data, frames._replace(arena_from_bytes=0), slot) if fits else None
            rows.append((size, inline if size <= header.MOST_INLINE_BYTES else NEVER, frame, shared))
        return rows

    def _best(self, data: Array, sizes: Sizes, slot: Slot | None) -> int:
        if sizes.inline_bytes > header.MOST_INLINE_BYTES:
            return NEVER
        times = []
        for _ in range(TRIES):
            begun = time.monotonic_ns()
            if slot is not None:
                slot.begin(0)
            packed = pack([data], {}, sizes, slot)
            self._exchange(Kind.PING, b"", Kind.PING, packed)
            times.append(time.monotonic_ns() - begun)
        return min(times)

    def close(self) -> None:
        """Closes all of it."""
        if self._side is not None:
            self._side.close()
        self._zeromq.close()
        self.shared.close()


def _reach(rows: list[tuple[int, int, int | None, int | None]]) -> int:
    """The largest size up to which inline is as good as any other way; at least the smallest measured."""
    reach = MEASURED_SIZES[0]
    for size, inline, *others in rows[1:]:
        if any(other is not None and other < CLEARLY * inline for other in others):
            break
        reach = size
    return reach


def _start(rows: list[tuple[int, int, int | None, int | None]]) -> int:
    """The size from which on shared memory beats frames at all larger sizes, too."""
    start = NEVER
    for size, _, frame, shared in reversed(rows):
        if shared is None or (frame is not None and frame < shared):
            break
        start = size
    return start


def error_of(what: str, prefix: Prefix, first: bytes | memoryview) -> RpcError:
    """The error that a FAILURE represents."""
    if prefix.kind != Kind.FAILURE:
        return InvalidMessage(f"the server answered with a message of kind {prefix.kind}")
    body = header.FAILURE.decode(first, prefix)
    text = _printable(body.text)
    if prefix.code == Status.FAILED:
        return RemoteFailure(what, _printable(body.kind), text, _printable(body.traceback))
    if prefix.code == Status.PEER_GONE:
        return PeerGone(text)
    if prefix.code == Status.INVALID:
        return InvalidMessage(f"the server could not use what it got: {text}")
    return Refused(f"{what} was refused by the server: {text}")


def _printable(text: str) -> str:
    """Strips escape codes, as the text goes to a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)
