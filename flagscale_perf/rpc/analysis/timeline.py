"""Calls and their stages as items, with arrows to the server's side of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.timeline import (
    Drawn,
    End,
    Item,
    Processes,
    Timeline,
    Track,
    end_to_end,
    id_of,
    number_of,
)
from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.figures import dtype_name, method_name, status_name
from flagscale_perf.rpc.records import CallRecord, ServedRecord, Status
from flagscale_perf.rpc.stages import ALL_STAGES, OTHER, stage_times


def timeline(session: Session) -> Timeline:
    """The timeline of a session."""
    calls = _Calls(session)
    own: dict[type, Callable[[Any], Iterable[Drawn]]] = {CallRecord: calls.call, ServedRecord: calls.served}
    return Timeline(session, own, main=calls.process)


class _Calls:
    def __init__(self, session: Session) -> None:
        self._facts = facts = RpcFacts.of(session.header.facts)
        title = " at ".join(filter(None, (facts.role, facts.endpoint)))
        self.process = replace(Processes(session).main, title=title)
        self._server = facts.endpoint.rpartition(":")[2]  # a host has several addresses
        self._session_id = session.header.session_id
        self._rows = Track(self.process, "remote calls", 50), Track(self.process, "served", 51)

    def _end(self, client: int, call: int, at_ns: int, is_source: bool) -> End:
        """Of the arrow from a call to the server, by the caller's number of it; 0 for a caller that has no
        number itself.
        """
        key = number_of(f"call {self._server} {client} {call}")
        return End(key, at_ns, is_source, "call")

    def call(self, call: CallRecord) -> Iterator[Item]:
        """The call, and its stages one after another."""
        end_ns = call.start_ns + call.total_ns
        facts = {
            "number": call.number,
            "sent_bytes": call.sent_bytes,
            "received_bytes": call.received_bytes,
            "dtype": dtype_name(call.dtype),
            "status": status_name(call.status),
        }
        named = {stage.name: ns for stage, ns in zip(ALL_STAGES, stage_times(call), strict=True)}
        named.pop(OTHER, None)
        facts |= {f"{name}_ns": ns for name, ns in named.items() if ns is not None}
        yield Item(
            method_name(call.method),
            self._rows[0],
            call.start_ns,
            end_ns,
            facts,
            id_of(f"{self._session_id} {call.number}", "call"),
            parts=tuple(end_to_end(call.start_ns, end_ns, named.items())),
            ends=(self._end(call.client or self._facts.client or 0, call.number, call.start_ns, True),),
            kind="client",
            error=None if call.status == Status.OK else status_name(call.status),
        )

    def served(self, served: ServedRecord) -> Iterator[Item]:
        """The server's part, from its turn on."""
        begin_ns = served.start_ns + served.queue_ns
        yield Item(
            method_name(served.method),
            self._rows[1],
            begin_ns,
            served.start_ns + served.total_ns,
            served._asdict(),
            id_of(f"{self._session_id} {served.number}", "served"),
            ends=tuple(self._end(each, served.call, begin_ns, False) for each in {0, served.client}),
            kind="server",
            error=None if served.status == Status.OK else status_name(served.status),
        )
