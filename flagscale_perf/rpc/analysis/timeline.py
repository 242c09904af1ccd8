"""Calls and their stages on a timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.timeline import Item, Name, Span, Timeline, Track
from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.figures import dtype_name, method_name, status_name
from flagscale_perf.rpc.records import CallRecord, ServedRecord
from flagscale_perf.rpc.stages import ALL_STAGES, OTHER, stage_times

CALLER, SERVER = 1, 2  # processes of the trace
_CALLS, _STAGES, _SERVED = Track(CALLER, 1), Track(CALLER, 2), Track(SERVER, 1)


def timeline(session: Session) -> Timeline:
    """The timeline of a session."""
    facts = RpcFacts.of(session.header.facts)
    calls = _Calls()
    own: dict[type, Callable[[Any], Iterable[Item]]] = {CallRecord: calls.call, ServedRecord: _served}
    names = [
        Name(Track(CALLER, 0), f"{facts.role} at {facts.endpoint}", is_process=True),
        Name(_CALLS, "calls"),
        Name(_STAGES, "stages, end to end"),
        Name(Track(SERVER, 0), "server", is_process=True),
        Name(_SERVED, "served"),
    ]
    return Timeline(session.header, own, names)


class _Calls:
    """The spans of calls; stages are left out for calls that overlap an earlier one."""

    def __init__(self) -> None:
        self._end_ns = 0

    def call(self, call: CallRecord) -> Iterator[Item]:
        """The call, and its stages one after another."""
        end_ns = call.start_ns + call.total_ns
        args = {
            "number": call.number,
            "sent_bytes": call.sent_bytes,
            "received_bytes": call.received_bytes,
            "dtype": dtype_name(call.dtype),
            "status": status_name(call.status),
        }
        name = method_name(call.method)
        if call.start_ns < self._end_ns:
            yield Span(_CALLS, name, call.start_ns, end_ns, args, "in flight", str(call.number))
            return
        self._end_ns = end_ns
        yield Span(_CALLS, name, call.start_ns, end_ns, args)
        at_ns = call.start_ns
        for stage, took_ns in zip(ALL_STAGES, stage_times(call), strict=True):
            if took_ns and took_ns > 0 and stage.name != OTHER:
                yield Span(_STAGES, stage.name, at_ns, at_ns + took_ns, {"number": call.number})
                at_ns += took_ns


def _served(served: ServedRecord) -> Iterator[Item]:
    args = served._asdict()
    begin_ns = served.start_ns + served.queue_ns
    yield Span(_SERVED, method_name(served.method), begin_ns, served.start_ns + served.total_ns, args)
