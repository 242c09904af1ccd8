"""Processes that train nothing and can be gathered all the same: each stores numbers, and each two of them
make a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flagscale_perf.spine.peers.kind import PeerKind
from flagscale_perf.spine.records import EventRecord

PER_SUM = 2


class Toy(NamedTuple):
    """What is known of one process."""

    name: str
    host: str


class ToySum(NamedTuple):
    """`PER_SUM` numbers of one process, added up; the last sum may be of fewer."""

    name: str
    total: int


class ToyFold:
    """A number is an event's iteration; an event called "note" is a remark instead."""

    def __init__(self, toy: Toy) -> None:
        self.position = 0
        self._name = toy.name
        self._numbers: list[int] = []
        self._notes: list[str] = []

    def meet(self, source: Any) -> None:
        """Nothing is asked."""

    def take(self, records: Sequence[Any]) -> list[ToySum]:
        sums = []
        for record in records:
            if record.name == "note":
                self._notes.append(record.text)
                continue
            self.position = record.iteration
            self._numbers.append(record.iteration)
            if len(self._numbers) == PER_SUM:
                sums += self.close()
        return sums

    def request(self, content: Any) -> None:
        self._notes.append(f"asked for {content}")

    def notes(self) -> list[str]:
        notes, self._notes = self._notes, []
        return notes

    def close(self) -> list[ToySum]:
        numbers, self._numbers = self._numbers, []
        return [ToySum(self._name, sum(numbers))] if numbers else []


def number(value: int) -> EventRecord:
    """A record of a toy process."""
    return EventRecord("number", 0, value, "")


def make_toy(name: str = "b1", host: str = "here") -> Toy:
    return Toy(name, host)


def _toy_of(content: Any) -> Toy:
    match content:
        case [str(name), str(host)]:
            return Toy(name, host)
    raise ValueError(f"no toy: {content!r:.40}")


TOYS = PeerKind(decode_owner=_toy_of, name_of=lambda toy: toy.name, folds=lambda: ToyFold)
