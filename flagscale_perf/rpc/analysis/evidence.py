"""What calls say of the clocks of client and server, where both have a session of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagscale_perf.analysis.clocks import Bound, clock_of
from flagscale_perf.analysis.session import Session
from flagscale_perf.rpc.facts import SERVER, RpcFacts
from flagscale_perf.rpc.records import CallRecord, ServedRecord, Status

_Key = tuple[int, int]  # a client's connection and its call


def bounds_of(sessions: Sequence[Session]) -> Iterator[Bound]:
    """A request is with the server after it was sent, and a reply with the client after that."""
    known = [(session, RpcFacts.of(session.header.facts)) for session in sessions]
    clients = [each for each in known if each[1].role != SERVER and each[1].client]
    servers = [each for each in known if each[1].role == SERVER]
    for server, its in servers if clients else ():
        # a server that does not say which one it is must be the only one
        own = [each for each in clients if its.epoch in (None, each[1].epoch)] * _is_known(its, servers)
        records = server.records(ServedRecord) if own else ()
        served = clock_of(server.header), {(record.client, record.call): record for record in records}
        for session, facts in own:
            yield from _of_calls(session, facts.client or 0, served)


def _is_known(server: RpcFacts, servers: Sequence[object]) -> bool:
    return server.epoch is not None or len(servers) == 1


def _of_calls(session: Session, client: int, server: tuple[str, dict[_Key, ServedRecord]]) -> Iterator[Bound]:
    clock, (other, known) = clock_of(session.header), server
    for call in session.records(CallRecord):
        if call.status == Status.OK:
            served = known.get((call.client or client, call.number))
            if served is not None and served.method == call.method:
                yield Bound(clock, call.start_ns + call.serialize_ns, other, served.start_ns)
                replied_ns = served.start_ns + served.total_ns - served.send_ns
                yield Bound(other, replied_ns, clock, call.start_ns + call.total_ns - call.deserialize_ns)
