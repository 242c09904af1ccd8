"""Records of this rank on their way into its ring: texts become numbers, and every record is numbered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flagscale_perf.profile.rank import Rank
from flagscale_perf.profile.records import NAMES, RankRecord, RoofRecord
from flagscale_perf.spine.peers.records import NAME_BYTES, NameRecord
from flagscale_perf.spine.records import Record


class Store:
    """Numbers names and records; not thread-safe."""

    def __init__(self, put_all: Callable[[Sequence[Record]], None]) -> None:
        self._put_all = put_all
        self._pending: list[Record] = []
        self._names: dict[str, int] = {"": 0}
        self._count = 0

    def name(self, text: str) -> int:
        """The text's number; records the text at its first use."""
        number = self._names.get(text)
        if number is None:
            number = self._names[text] = len(self._names)
            self._pending.append(NameRecord(0, number, _cut(text)))
        return number

    def next_number(self) -> int:
        """Reserves the number of a record that is added after those that refer to it."""
        self._count += 1
        return self._count

    def add(self, kind: type[Record], number: int | None = None, **fields: Any) -> int:
        """Adds a record, with its texts as numbers, and returns its number."""
        number = self.next_number() if number is None else number
        for name in NAMES[kind]:
            fields[name] = self.name(fields[name])
        self._pending.append(kind(process=0, number=number, **fields))
        return number

    def flush(self) -> None:
        """Passes on what was added since the last call; may wait for room in the ring."""
        pending, self._pending = self._pending, []
        self._put_all(pending)

    def add_rank(self, rank: Rank, modules: int) -> None:
        """Adds the record of the rank, which comes first."""
        self.add(RankRecord, **vars(rank), modules=modules)

    def add_roofs(self, per_second: Mapping[str, int]) -> None:
        """Adds what this rank's device reaches at best, as measured by `device.roofs.roofs`."""
        for roof, value in per_second.items():
            self.add(RoofRecord, roof=roof, per_second=value)


def _cut(text: str) -> str:
    """Shortens a name from the left: modules differ at the end of their paths."""
    raw = text.encode()
    return text if len(raw) <= NAME_BYTES else raw[-NAME_BYTES:].decode(errors="ignore")
