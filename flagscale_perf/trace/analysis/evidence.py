"""What puts and gets say of the clocks of the machines where they were made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from flagscale_perf.analysis.clocks import Bound, clock_of
from flagscale_perf.analysis.session import Session
from flagscale_perf.trace.analysis.source import RunReader, Traces
from flagscale_perf.trace.analysis.transfers import Transfer, Transfers
from flagscale_perf.trace.records import Kind

_KEYS = 256  # of an operation that are looked at: it has one for each field of each sample

_Key = tuple[str, int, str]  # partition, index, field
_Put = tuple[str, int]  # clock and mark of its begin


def bounds_of(sessions: Sequence[Session]) -> Iterator[Bound]:
    """A get that has a field of a sample ended after the first put of that began, if one machine put it."""
    read = [(clock_of(session.header), _all_of(_read(session))) for session in sessions]
    puts: dict[_Key, _Put | None] = {}
    for clock, transfers in read:
        for one in transfers:
            for key in _keys(one) if one.kind == Kind.PUT else ():
                puts[key] = _earlier(puts.get(key, (clock, one.start_ns)), clock, one.start_ns)
    for clock, transfers in read:
        for one in transfers:
            found = {puts.get(key) for key in _keys(one)} if one.kind == Kind.GET else ()
            for put in found:
                if put is not None and put[0] != clock:
                    yield Bound(*put, clock, one.end_ns)


def _earlier(known: _Put | None, clock: str, start_ns: int) -> _Put | None:
    return None if known is None or known[0] != clock else min(known, (clock, start_ns))


def _read(session: Session) -> Traces:
    """Not by what is kept of a report, which it would replace."""
    traces = Traces("", "", transfers=Transfers())
    reader = RunReader(traces, session.course)
    for record in session:
        reader.add(record)
    reader.settle()
    return traces


def _all_of(traces: Traces) -> Sequence[Transfer]:
    """None where some are missing: of an index that is used again, the put known may be of a later sample."""
    transfers, losses = traces.transfers, traces.losses
    if transfers is None or losses.dropped or losses.lost or transfers.left_out:
        return ()
    return transfers.transfers if all(one.weight == 1 for one in transfers.transfers) else ()


def _keys(one: Transfer) -> Iterator[_Key]:
    rows = (row for first, count in one.ranges or () for row in range(first, first + count))
    fields = one.fields or ()
    return islice(((one.partition, row, name) for row in rows for name in fields), _KEYS)
