"""A run file read by the writer that goes on with it after the first one died."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from flagscale_perf.spine.files import open_regular
from flagscale_perf.spine.jsonl import MAX_LINE_BYTES, BadLine, encode
from flagscale_perf.spine.peers.rings import AnyRing
from flagscale_perf.spine.reading import read_records
from flagscale_perf.spine.records import EventRecord, Record, RunEnd
from flagscale_perf.writer.instrument import Instrument
from flagscale_perf.writer.session import Session


class Recovered(NamedTuple):
    """What there is of the earlier writer.

    Attributes:
        known: records, as they are written, that may be both in the ring and in the run file.
        texts: of its events.
        has_ended: the session's end is in the run file.
    """

    known: frozenset[bytes]
    texts: set[str]
    has_ended: bool


NOTHING = Recovered(frozenset(), set(), False)


def recover(
    session: Session, instrument: Instrument, ring: AnyRing, go_on: Callable[[], None], most: int
) -> Recovered:
    """Gives views and instrument what the earlier writer knew. `most` records at the end may be in the ring,
    too; `go_on` is called after each record. Raises OSError.
    """
    known: deque[bytes] = deque(maxlen=most)
    texts: set[str] = set()
    has_ended = False
    try:
        for record in replay(session.path("records")):
            go_on()
            session.views.rebuild(record)
            instrument.replay(record, ring.dropped)
            has_ended |= isinstance(record, RunEnd)
            if isinstance(record, instrument.joined):
                known.append(encode(record))
            if isinstance(record, EventRecord):
                texts.add(record.text)
    except FileNotFoundError:
        return Recovered(frozenset(), texts, has_ended)  # removed meanwhile: the session goes on
    return Recovered(frozenset(known), texts, has_ended)


def replay(path: Path) -> Iterator[Record]:
    """Every record in the file; a last line without an end is cut off. Raises OSError."""
    fd = open_regular(path, os.O_RDWR | os.O_NOFOLLOW)
    with os.fdopen(fd, "rb") as file:
        for record in read_records(file):
            if not isinstance(record, BadLine):
                yield record
            elif record.torn:
                _cut_torn_line(fd)


def _cut_torn_line(fd: int) -> None:
    size = os.fstat(fd).st_size
    start = max(0, size - MAX_LINE_BYTES)
    end = os.pread(fd, size - start, start).rfind(b"\n") + 1
    os.ftruncate(fd, start + end)
