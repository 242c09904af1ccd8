"""What calls say of the clocks of a client's and a server's machine, where both have a session of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from flagscale_perf.analysis.clocks import Bound, clock_of
from flagscale_perf.rpc.facts import SERVER, RpcFacts
from flagscale_perf.rpc.records import CallRecord, ServedRecord, Status
from flagscale_perf.store.run_file import RunFile

_Key = tuple[int, int]  # a client's connection and its call


def bounds_of(files: Sequence[RunFile]) -> Iterator[Bound]:
    """A request is with the server after it was sent, and a reply with the client after that."""
    facts = {file.path: RpcFacts.of(file.header.facts) for file in files}
    servers = [file for file in files if facts[file.path].role == SERVER]
    for server in servers:
        epoch = facts[server.path].epoch
        clients = [
            file
            for file in files
            if facts[file.path].role != SERVER
            and facts[file.path].client
            and clock_of(file.header) != clock_of(server.header)
            # a server that does not say which one it is must be the only one
            and (facts[file.path].epoch == epoch or (epoch is None and len(servers) == 1))
        ]
        if clients:
            served = {
                (record.client, record.call): record for record in server if isinstance(record, ServedRecord)
            }
            for client in clients:
                number = facts[client.path].client or 0
                yield from _of_calls(clock_of(client.header), number, client, (clock_of(server.header), served))


def _of_calls(
    clock: str, client: int, records: Iterable[object], server: tuple[str, dict[_Key, ServedRecord]]
) -> Iterator[Bound]:
    other, known = server
    for call in records:
        if isinstance(call, CallRecord) and call.status == Status.OK:
            served = known.get((call.client or client, call.number))
            if served is not None and served.method == call.method:
                yield Bound(clock, call.start_ns + call.serialize_ns, other, served.start_ns)
                replied_ns = served.start_ns + served.total_ns - served.send_ns
                yield Bound(other, replied_ns, clock, call.start_ns + call.total_ns - call.deserialize_ns)
