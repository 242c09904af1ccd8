"""The records of calls, on the caller's side and on the server's."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, NamedTuple

from flagscale_perf.spine.records import record
from flagscale_perf.spine.slots import Bytes

METHOD_BYTES = 24


class Status(IntEnum):
    """How a call ended."""

    OK = 0
    TIMEOUT = 1  # no reply in time
    PEER_GONE = 2  # the other process ended, or the connection did
    REFUSED = 3  # by the limits of either side: never carried out
    FAILED = 4  # the method raised an error
    INVALID = 5  # the reply was not what was asked for


@record("rpc_call", slot=8, start="start_ns", duration="total_ns")
class CallRecord(NamedTuple):
    """One call, as the caller saw it. The stages follow one another; the rest of `total_ns` is the caller's
    own work between them.

    Attributes:
        number: of the session, from 1, without gaps.
        start_ns: monotonic mark.
        total_ns: from there to the result.
        serialize_ns: until the message is ready: headers, and copies into frames or shared memory.
        send_ns: until the socket has taken it, and no longer than until the server has it. ZeroMQ's send only
            queues, so it is short there.
        wait_ns: from then on until the reply was there, without what the server says it took: transport,
            and waking up. None where `receive_ns` has it, as nothing tells them apart.
        queue_ns: at the server, until it began; None where it does not say.
        server_ns: at the server, from its beginning to its reply; None where it does not say, or says more
            than the call took. `wait_ns` has both then.
        receive_ns: taking the reply from the socket.
        deserialize_ns: until the result can be used.
        sent_bytes, received_bytes: of arrays, the figures of the requirement's log.
        socket_sent_bytes, socket_received_bytes: through a socket, headers included.
        shared_sent_bytes, shared_received_bytes: through shared memory.
        status: a `Status`.
        dtype: a `DType`, of the largest array sent, or received where none was; 0 without arrays.
        client: number of the caller's connection at the server; 0 where it is not known.
        method: its name.
    """

    number: int
    start_ns: int
    total_ns: int
    serialize_ns: int
    send_ns: int
    wait_ns: int | None
    queue_ns: int | None
    server_ns: int | None
    receive_ns: int
    deserialize_ns: int
    sent_bytes: int
    received_bytes: int
    socket_sent_bytes: int
    socket_received_bytes: int
    shared_sent_bytes: int
    shared_received_bytes: int
    status: int
    dtype: int
    client: int
    method: Annotated[str, Bytes(METHOD_BYTES)]

    @property
    def moved_bytes(self) -> int:
        """Of arrays, both ways together."""
        return self.sent_bytes + self.received_bytes


@record("rpc_served", slot=9, start="start_ns", duration="total_ns")
class ServedRecord(NamedTuple):
    """One call, as the server saw it.

    Attributes:
        number: of the server, from 1.
        client: number of the connection.
        call: the caller's number of it.
        start_ns: monotonic mark: the request was there.
        total_ns: from there until the reply was handed over.
        queue_ns: until its turn came.
        read_ns: checking it, and making arrays of it.
        compute_ns: in the method.
        write_ns: the results into the reply.
        send_ns: until the socket has taken it.
        received_bytes, sent_bytes: of arrays.
        status: a `Status`.
        method: its name.
    """

    number: int
    client: int
    call: int
    start_ns: int
    total_ns: int
    queue_ns: int
    read_ns: int
    compute_ns: int
    write_ns: int
    send_ns: int
    received_bytes: int
    sent_bytes: int
    status: int
    method: Annotated[str, Bytes(METHOD_BYTES)]
