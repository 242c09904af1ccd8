"""The serving side: one thread, which serves every client in turn."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

import zmq

from flagscale_perf.rpc.dtypes import DType
from flagscale_perf.rpc.records import ServedRecord, Status
from tensor_rpc import wire
from tensor_rpc.endpoint import Claim, machine, path_of, transport_of
from tensor_rpc.errors import PeerGone, Refused, RpcError
from tensor_rpc.memory import Arena, Slot, check_free, make_arena
from tensor_rpc.options import ServerOptions, Value
from tensor_rpc.wire import NOTHING_TOLD, Array, Told, byte_count

QUEUE = 8  # replies to one client that wait for it
LOOK_MS = 100  # between two looks whether to stop
SEND_DEADLINE_MS = 250  # of a reply to a client that takes nothing; the others wait meanwhile
HOUR_NS = 3600 * 10**9
MOST_TEXT, MOST_TRACEBACK = 4000, 16000  # bytes
now = time.monotonic_ns


@dataclass
class Request:
    """A call, as passed to a method.

    Attributes:
        arrays: views of what came, valid until the method returns. The caller could change those in shared
            memory while it runs: values that must be right, indices say, are copied first and then checked.
        arguments: by name.
        client: number of the connection.
        slot: shared memory for the reply; None without.
    """

    arrays: list[Array]
    arguments: Mapping[str, Value]
    client: int
    slot: Slot | None

    def reply(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """Writable memory for a result. If it is in shared memory, which must have room for it, replying
        copies nothing.
        """
        size = byte_count(dtype, shape)
        data = self.slot.lend(size) if self.slot is not None else None
        return Array(dtype, shape, memoryview(bytearray(size)) if data is None else data)


Handler = Callable[[Request], Sequence[Array]]


@dataclass
class Connection:
    """One client.

    Attributes:
        number: of the connection.
        who: its identity at ZeroMQ.
        same_machine: it is on this machine and in this server's container, or neither is in one.
        packs: its arrays are packed into one frame: the baseline.
        most_bytes: of arrays that it takes in a reply.
        process: a descriptor that is readable once the client has ended; None where that cannot be seen.
        arenas: its shared memory for calls and for replies; empty without.
        last_call: number of its last call.
    """

    number: int
    who: bytes
    same_machine: bool
    packs: bool
    most_bytes: int
    process: int | None
    arenas: list[Arena] = field(default_factory=list)
    last_call: int = 0

    def close(self) -> None:
        """Frees what it has."""
        for arena in self.arenas:
            arena.close()
        if self.process is not None:
            os.close(self.process)


@dataclass
class _Marks:
    """Of one call, for its record and its reply; 0 for what was not reached."""

    begun_ns: int
    after_ns: int = 0
    queue_ns: int = 0
    read_ns: int = 0
    compute_ns: int = 0
    write_ns: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    status: int = Status.OK
    method: str = ""

    def told(self) -> Told:
        """What the reply says of them."""
        return self.queue_ns, now() - self.begun_ns, self.after_ns


class Server:
    """Serves methods at an endpoint.

    Attributes:
        endpoint: the actual one.
    """

    def __init__(
        self,
        methods: Mapping[str, Handler],
        options: ServerOptions,
        observe: Callable[[ServedRecord], None] | None = None,
    ) -> None:
        """Binds the endpoint; `serve` answers calls. `observe` gets the record of each call, on the serving
        thread.
        """
        self._methods = list(methods.items())
        self._options = options
        self._observe = observe
        self._epoch = time.time_ns()
        self._connections: dict[bytes, Connection] = {}
        self._count = self._served = 0
        self._free_since_ns = now()
        self._stopping = False
        transport_of(options.endpoint, options.allow_remote)
        check_free(2 * options.arena_bytes)
        path = path_of(options.endpoint)
        self._claim = Claim(path) if path is not None else None
        self._context = zmq.Context()
        try:
            self._socket = self._bind(options)
        except BaseException:
            self._context.destroy(0)
            if self._claim is not None:
                self._claim.release()
            raise
        self.endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)

    def _bind(self, options: ServerOptions) -> zmq.Socket[bytes]:
        """What libzmq leaves open is limited here: the size of a message, queues, who may connect."""
        socket = self._context.socket(zmq.ROUTER)
        socket.linger = 0
        socket.set_hwm(QUEUE)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.MAXMSGSIZE, options.max_message_bytes + wire.MOST_HEADER_BYTES)
        if self._claim is not None:
            socket.setsockopt(zmq.IPC_FILTER_UID, os.getuid())
        before = os.umask(0o077)
        try:
            socket.bind(options.endpoint)
        except zmq.ZMQError as error:
            raise Refused(f"cannot listen at {options.endpoint}: {error.strerror}") from None
        finally:
            os.umask(before)
        return socket

    def serve(self) -> None:
        """Runs until `stop`, on the main thread also until SIGINT or SIGTERM, then closes everything."""
        is_main = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
        before = {number: signal.signal(number, lambda *_: self.stop()) for number in numbers}
        try:
            while not self._stopping:
                ready = dict(self._poller.poll(LOOK_MS))
                self._forget_ended(ready)  # first, so that a greeting finds their room
                if self._socket in ready:
                    self._serve_one()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.close()

    def stop(self) -> None:
        """Ends `serve` after the current call; may be called from any thread or signal handler."""
        self._stopping = True

    def close(self) -> None:
        """For a server that will not serve; `serve` calls it at its end."""
        if self._socket.closed:
            return
        for who in [*self._connections]:
            self._forget(who)
        self._socket.close(0)
        self._context.term()
        if self._claim is not None:
            self._claim.release()

    # --- messages

    def _serve_one(self) -> None:
        who, *received = self._socket.recv_multipart(copy=False)
        begun_ns, sender = now(), who.bytes
        frames = [frame.buffer for frame in received]
        connection = self._connections.get(sender)
        call = 0
        try:
            message = wire.for_server(received[0].bytes if received else b"")
            if isinstance(message, wire.Greeting):
                self._forget(sender)
                self._send(sender, wire.header(self._greet(sender, message)), waits=False)
            elif connection is None:
                raise PeerGone("this server was started after the client met it: connect again")
            elif isinstance(message, wire.Call):
                call = message.number
                self._call(connection, message, frames[1:], begun_ns)
            elif isinstance(message, wire.Ping):
                self._send(sender, received[0].bytes)
            else:
                self._forget(sender)
        except RpcError as error:
            failure = _failure(call, error.status, NOTHING_TOLD, error)
            self._send(sender, failure, waits=connection is not None)

    def _send(self, who: bytes, first: bytes, frames: Sequence[wire.Frame] = (), waits: bool = True) -> bool:
        """False if the client has gone or takes nothing: it is forgotten then. A stranger is not worth
        waiting for, as all others would wait, too.
        """
        connection = self._connections.get(who)
        # Not 0 for a client: without waiting, libzmq considers a queue full that has just been emptied.
        self._socket.sndtimeo = SEND_DEADLINE_MS if waits else 0
        try:
            self._socket.send(who, zmq.SNDMORE)
            self._socket.send(first, zmq.SNDMORE if frames else 0)
            for place, frame in enumerate(frames, 1):
                copies = connection is not None and connection.packs
                self._socket.send(frame, zmq.SNDMORE if place < len(frames) else 0, copy=copies)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self._forget(who)
            return False
        return True

    # --- clients

    def _greet(self, who: bytes, greeting: wire.Greeting) -> wire.Welcome:
        if greeting.protocol != wire.PROTOCOL:
            raise Refused(
                f"protocol {greeting.protocol}; this server speaks {wire.PROTOCOL}: use the same version on "
                "both sides"
            )
        self._make_room()
        options, here = self._options, machine()
        same_machine = greeting.machine == here != ""
        self._count += 1
        connection = Connection(
            self._count, who, same_machine, greeting.payload == "msgpack",
            min(greeting.max_message_bytes, options.max_message_bytes),
            _ended(greeting.process) if same_machine else None,
        )  # fmt: skip
        if greeting.payload == "shared" and connection.process is not None and options.arena_bytes:
            for peer_writes in (True, False):
                connection.arenas.append(make_arena(options.arena_bytes, options.slots, peer_writes))
        if connection.process is not None:
            self._poller.register(connection.process, zmq.POLLIN)
        self._connections[who] = connection
        shared = [wire.Memory(arena.descriptor, arena.inode, arena.size) for arena in connection.arenas]
        return wire.Welcome(
            wire.PROTOCOL, self._count, self._epoch, os.getpid(), here, options.device, options.dtype,
            options.description, tuple(name for name, _ in self._methods), options.max_message_bytes,
            options.slots, *(shared or (None, None)),
        )  # fmt: skip

    def _make_room(self) -> None:
        most = self._options.max_clients
        if len(self._connections) >= most:
            for who in [who for who, each in self._connections.items() if each.process is None]:
                self._send(who, wire.header(wire.Ping()))  # which forgets it where it has gone
        if len(self._connections) >= most:
            raise Refused(f"{most} clients are connected already; raise max_clients")

    def _forget_ended(self, ready: Container[object]) -> None:
        for who in [who for who, each in self._connections.items() if each.process in ready]:
            self._forget(who)

    def _forget(self, who: bytes) -> None:
        connection = self._connections.pop(who, None)
        if connection is not None:
            if connection.process is not None:
                self._poller.unregister(connection.process)
            connection.close()

    # --- calls

    def _call(
        self, connection: Connection, call: wire.Call, frames: Sequence[wire.Frame], begun_ns: int
    ) -> None:
        marks = _Marks(begun_ns)
        # A call waited for others since it was sent, until the server had answered the one before. What the
        # caller claims is not believed beyond an hour.
        if connection.same_machine and begun_ns - HOUR_NS < call.ready_ns < begun_ns:
            marks.after_ns = begun_ns - call.ready_ns
            marks.queue_ns = max(0, self._free_since_ns - call.ready_ns)
        try:
            packed = self._carry_out(connection, call, frames, marks)
            first = wire.header(wire.Reply(call.number, marks.told(), packed.parts))
            behind = packed.frames
        except Exception as error:  # a method may raise anything; it is reported to the caller
            marks.status = error.status if isinstance(error, RpcError) else Status.FAILED
            first, behind = _failure(call.number, marks.status, marks.told(), error), []
        ready_ns = now()
        delivered = self._send(connection.who, first, behind)
        self._free_since_ns = end_ns = now()
        self._served += 1
        if self._observe is not None:
            self._observe(
                ServedRecord(
                    number=self._served,
                    client=connection.number,
                    call=call.number,
                    start_ns=begun_ns - marks.queue_ns,
                    total_ns=end_ns - begun_ns + marks.queue_ns,
                    queue_ns=marks.queue_ns,
                    read_ns=marks.read_ns,
                    compute_ns=marks.compute_ns,
                    write_ns=marks.write_ns,
                    send_ns=end_ns - ready_ns,
                    received_bytes=marks.received_bytes,
                    sent_bytes=marks.sent_bytes,
                    status=marks.status if delivered else Status.PEER_GONE,
                    method=marks.method,
                )
            )

    def _carry_out(
        self, connection: Connection, call: wire.Call, frames: Sequence[wire.Frame], marks: _Marks
    ) -> wire.Packed:
        if call.method >= len(self._methods):
            raise Refused(f"method {call.method} of {len(self._methods)}")
        marks.method, handler = self._methods[call.method]
        if call.number <= connection.last_call:
            raise Refused(f"call {call.number} after call {connection.last_call}")
        connection.last_call = call.number
        if call.slot >= self._options.slots:
            raise Refused(f"slot {call.slot} of {self._options.slots}")
        slot = reply_slot = None
        if connection.arenas:
            slot, reply_slot = (arena.slots[call.slot] for arena in connection.arenas)
            reply_slot.begin()
        found = wire.unpack(call.parts, frames, slot, self._options.max_message_bytes)
        marks.received_bytes = found.total
        request = Request(found.arrays, call.arguments, connection.number, reply_slot)
        read_ns = now()
        marks.read_ns = read_ns - marks.begun_ns
        results = handler(request)
        computed_ns = now()
        marks.compute_ns = computed_ns - read_ns
        packed = wire.pack(results, reply_slot, connection.packs, connection.most_bytes)
        marks.sent_bytes = packed.total
        marks.write_ns = now() - computed_ns
        return packed


def _failure(call: int, status: int, told: Told, error: Exception) -> bytes:
    """With the traceback if a method failed."""
    trace = "" if isinstance(error, RpcError) else "".join(traceback.format_exception(error))
    kind, text = _cut(type(error).__name__, slice(200)), _cut(str(error), slice(MOST_TEXT))
    return wire.header(
        wire.Failure(call, told, status, kind, text, _cut(trace, slice(-MOST_TRACEBACK, None)))
    )


def _cut(text: str, part: slice) -> str:
    """So many bytes of it; what cannot be encoded, as in a file's name that is no text, is escaped."""
    return text.encode("utf-8", "backslashreplace")[part].decode("utf-8", "ignore")


def _ended(process: int) -> int | None:
    """A descriptor that is readable once the process has ended; None where there is none."""
    try:
        return os.pidfd_open(process)
    except (OSError, OverflowError):
        return None
