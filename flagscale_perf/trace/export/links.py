"""Which puts made the samples of a get, as span links, by the report's lineage."""

from __future__ import annotations

from collections.abc import Iterable

from flagscale_perf.spine.records import Record
from flagscale_perf.trace.analysis.lineage import join
from flagscale_perf.trace.analysis.moves import Moves
from flagscale_perf.trace.analysis.source import RunReader, Traces
from flagscale_perf.trace.records import OperationRecord

MAX_LINKS = 128  # of one get, the newest: what OpenTelemetry keeps of a span's
Key = tuple[int, int]  # number of the process, and of the operation in it


def links_of(records: Iterable[Record]) -> dict[Key, tuple[Key, ...]]:
    """For each get of samples put in this run, these puts, oldest first."""
    moves, keys = Moves(), list[Key]()
    reader = RunReader(Traces("", "", moves=moves), has_hosts=True)
    for record in records:
        reader.add(record)
        if isinstance(record, OperationRecord) and len(moves.moves) > len(keys):
            keys.append((record.process, record.number))
    puts: dict[int, set[int]] = {}
    join(moves, lambda get, put, _: puts.setdefault(get, set()).add(put))
    found = {}
    for get, made in puts.items():
        ordered = sorted(made, key=lambda place: (moves.moves[place].ready_ns, keys[place]))
        found[keys[get]] = tuple(keys[place] for place in ordered[-MAX_LINKS:])
    return found
