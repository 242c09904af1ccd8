"""Room for the end of a run file whose disk takes no more: in the place of its last records."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

from flagscale_perf.sinks.run_file import RecordsSink
from flagscale_perf.spine.jsonl import BadLine, encode, read_records, recall
from flagscale_perf.spine.records import Record

MOST_ITERATIONS = 1 << 53


class Room(NamedTuple):
    """A place in a run file.

    Attributes:
        place: its offset in bytes; from there on nothing is needed that is not in `moved`.
        moved: the records that stand there.
        last: the last iteration before them; None where there is none.
    """

    place: int
    moved: list[Any]
    last: int | None


def room_in(run_file: RecordsSink, words: Sequence[Record]) -> Room | None:
    """Room for these words; None where there is none, or the file cannot be read."""
    try:
        place, before, lines = run_file.tail(sum(len(encode(word)) for word in words))
    except OSError:
        return None
    steps = [each.iteration for each in _records_of(before) if hasattr(each, "iteration_ns")]
    return Room(place, _records_of(lines), steps[-1] if steps else None)


def _records_of(lines: bytes) -> list[Any]:
    found = read_records(io.BytesIO(lines), recall)
    return [record for record in found if not isinstance(record, BadLine)]
