"""Records beside those of operations and calls: names, sets of fields, rows that are no range, storage units,
keys.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.spine.records import Record, room_of, tuple_of
from flagscale_perf.trace.records import (
    ClearRecord,
    FieldsRecord,
    KeysRecord,
    RowsRecord,
    UnitsRecord,
    UnsizedRecord,
    VersionsRecord,
)

MOST_NAMES = 4096  # that are remembered; a run that names each partition anew has no end of them
RANGES_ROOM, CLEAR_ROOM, UNITS_ROOM, KEYS_ROOM = (  # of pairs
    room_of(kind) // 2 * 2 for kind in (RowsRecord, ClearRecord, UnitsRecord, KeysRecord)
)
FIELDS_ROOM, UNSIZED_ROOM = room_of(FieldsRecord), room_of(UnsizedRecord)
MOST_RANGES = 64 * RANGES_ROOM  # integers of those of one operation


class Side:
    """Puts these of one process; what it has put once it remembers."""

    def __init__(self, put: Callable[[Record], None]) -> None:
        self._put = put
        self.begin()

    def begin(self) -> None:
        """Forgets all names and sets of fields: they are recorded again when they are used."""
        self._name_numbers = itertools.count(1)
        self._names: dict[str, int] = {}
        self._field_sets: dict[tuple[str, ...], int] = {}

    def _name(self, text: str) -> int:
        number = self._names.get(text)
        if number is None:
            number = next(self._name_numbers)
            self._put(NameRecord(0, number, text))  # first: another thread may find the number at once
            if len(self._names) >= MOST_NAMES:
                self._names = {}
            self._names[text] = number
        return number

    def _error_name(self, error: BaseException | None) -> int:
        return 0 if error is None else self._name(type(error).__name__)

    def _field_set(self, fields: tuple[str, ...]) -> int:
        names = [self._name(str(field)) for field in fields]
        number = next(self._name_numbers)
        for at in range(0, len(names), FIELDS_ROOM):
            self._put(FieldsRecord(0, number, tuple(names[at : at + FIELDS_ROOM])))
        if len(self._field_sets) >= MOST_NAMES:
            self._field_sets = {}
        self._field_sets[fields] = number
        return number

    def _put_units(self, number: int, waits: Sequence[tuple[str, int]]) -> None:
        names = self._names
        held: list[int] = []
        for unit, wait_ns in waits[: UNITS_ROOM // 2]:
            held += (names.get(unit) or self._name(unit), wait_ns)
        self._put(tuple_of(UnitsRecord, (0, number, tuple(held))))

    def _put_versions(self, number: int, versions: tuple[int, int] | None) -> None:
        if versions is not None:
            self._put(VersionsRecord(0, number, *versions))

    def _put_unsized(self, number: int, known: int, fields: Sequence[str]) -> None:
        names = tuple(self._name(field) for field in fields[:UNSIZED_ROOM])
        self._put(UnsizedRecord(0, number, known, names))

    def _put_ranges(self, number: int, ranges: tuple[int, ...]) -> None:
        for part, is_cut in parts_of(ranges, RANGES_ROOM):
            self._put(RowsRecord(0, number, is_cut, part))

    def _put_keys(self, at_ns: int, pairs: Iterable[tuple[int, int]], partition: str) -> None:
        held, name = tuple(itertools.chain.from_iterable(pairs)), self._name(partition)
        for at in range(0, len(held), KEYS_ROOM):
            self._put(KeysRecord(0, name, at_ns, held[at : at + KEYS_ROOM]))


def parts_of(ranges: tuple[int, ...], room: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Splits ranges into parts of one record each, and tells whether some were left out; at least one
    part.
    """
    end = min(len(ranges), MOST_RANGES)
    for at in range(0, end or 1, room):
        yield ranges[at : min(at + room, end)], int(at + room >= end < len(ranges))
