"""Carries the server's records into its client's session: the server keeps a ring for each client and hands
it to that client's writer, of the same user on the same machine. Nothing of this is in the calls.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.records import ServedRecord
from flagscale_perf.spine.peers.handover import job_key
from flagscale_perf.spine.peers.kind import Fold, PeerKind
from flagscale_perf.spine.peers.node import Node
from flagscale_perf.spine.peers.own import OwnRing

MAX_RINGS = 16  # of 1 MiB each; the least recently served client loses its ring
_NAME = "server"


class Serving(NamedTuple):
    """A server, and the client that it serves.

    Attributes:
        pid: the server.
        client: number of the connection there.
    """

    pid: int
    client: int


def _serving_of(content: Any) -> Serving:
    match content:
        case [int(pid), int(client)]:
            return Serving(pid, client)
    raise ValueError(f"not who serves whom: {content!r:.40}")


class ServedFold(Fold[ServedRecord]):
    """Keeps every record as it is.

    Attributes:
        position: number of the last one.
    """

    def __init__(self, serving: Serving) -> None:
        self.position = 0

    def take(self, records: Sequence[Any]) -> list[ServedRecord]:
        """The records of served calls among these."""
        served = [record for record in records if isinstance(record, ServedRecord)]
        if served:
            self.position = served[-1].number
        return served


SERVED = PeerKind(decode_owner=_serving_of, name_of=lambda serving: _NAME, folds=lambda: ServedFold)


def _key(serving: Serving) -> str:
    return job_key("rpc", str(serving.pid), str(serving.client))


class ServedRings:
    """The server's end: its single thread passes records to `observe`."""

    def __init__(self, pid: int) -> None:
        """`pid`: of the server, which is this process."""
        self._pid = pid
        self._rings: OrderedDict[int, OwnRing] = OrderedDict()

    def observe(self, record: ServedRecord) -> None:
        """Stores the record for its client; it is lost if there is no memory for a ring."""
        ring = self._rings.get(record.client)
        if ring is None:
            ring = self._new(record.client)
        ring.put(record)

    def close(self) -> None:
        """Ends every client's ring: no more records follow."""
        for ring in self._rings.values():
            ring.end("completed")
        self._rings.clear()

    def _new(self, client: int) -> OwnRing:
        if len(self._rings) >= MAX_RINGS:
            _, oldest = self._rings.popitem(last=False)
            oldest.end("completed")
        serving = Serving(self._pid, client)
        try:
            ring = OwnRing.begin(_key(serving), list(serving))
        except (OSError, RuntimeError):  # no shared memory, or thread: the calls are served all the same
            ring = OwnRing(None)
        self._rings[client] = ring
        return ring


def server_of(facts: RpcFacts, watch: Callable[[int], None]) -> Node[Serving, ServedRecord]:
    """The end of the client's writer: the ring of the server that these facts name, which exists from the
    first call on.
    """
    serving = Serving(facts.server_pid or 0, facts.client or 0)
    return Node(SERVED, _key(serving), expected=1, since_ns=0, watch=watch)
