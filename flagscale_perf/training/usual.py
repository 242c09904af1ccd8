"""Usual train steps in columns: trained, none the first after a start, each behind its phases or all without.
And intervals in columns.

Millions of steps are usual, and summed by column, in half the time; others, and the first ones of a session,
one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from itertools import compress
from operator import add, attrgetter
from typing import Any, cast

from flagscale_perf.training.records import IntervalRecord, Outcome, PhaseRecord, StepRecord

Columns = Mapping[str, Sequence[Any]]
_TRAINED = int(Outcome.TRAINED)
_FIELDS = [field.name for field in fields(IntervalRecord)]


def total(column: Sequence[int | None]) -> int | None:
    """The sum of a column; None where one of its values is not known."""
    try:
        return sum(cast("Sequence[int]", column))
    except TypeError:  # to look for a None in all takes longer
        return None


def known_total(column: Sequence[int | None]) -> int | None:
    """The sum of those that are known; None where none is."""
    whole = total(column)
    if whole is None and column.count(None) < len(column):
        return sum(value for value in column if value is not None)
    return whole


def highest_of(column: Sequence[Any]) -> Any:
    """The largest of those that are known; None where none is."""
    try:
        return max(column, default=None)
    except TypeError:
        return max((value for value in column if value is not None), default=None)


class Intervals:
    """Intervals that follow one another, by the names of their fields in columns."""

    def __init__(self, columns: Columns, places: Sequence[int] | None = None) -> None:
        """Of all the columns' rows, or of those at some places."""
        self._columns = columns
        self._places: Sequence[int] = range(len(columns["steps"])) if places is None else places
        self._chosen: dict[str, Sequence[Any]] = {}
        self._is_whole = len(self._places) == len(columns["steps"])

    @classmethod
    def of(cls, intervals: Iterable[IntervalRecord]) -> Intervals:
        """The same in columns; of at least one."""
        return cls.made(list(zip(*map(attrgetter(*_FIELDS), intervals), strict=True)))

    @classmethod
    def made(cls, columns: Sequence[Sequence[Any]]) -> Intervals:
        """Of columns in the order of the fields; none of no columns."""
        return cls(dict(zip(_FIELDS, columns or [()] * len(_FIELDS), strict=True)))

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, name: str) -> Sequence[Any]:
        """The column of that name."""
        column = self._columns[name]
        if self._is_whole:
            return column
        if name not in self._chosen:
            at = self._places
            self._chosen[name] = (
                column[at.start : at.stop] if isinstance(at, range) else [column[place] for place in at]
            )
        return self._chosen[name]

    def one(self, number: int) -> IntervalRecord:
        """The interval at this place, as a record."""
        place, made = self._places[number], object.__new__(IntervalRecord)
        # Like the class itself, which sets each field by a call of its own and takes three times as long.
        vars(made).update({name: column[place] for name, column in self._columns.items()})
        return made

    def seen(self, number: int) -> Any:
        """The same to look at a few of its fields: made in no time, but it holds all these intervals."""
        return _Seen(self._columns, self._places[number])

    def part(self, begin: int, end: int) -> Intervals:
        """Those from one place up to another."""
        return self if (begin, end) == (0, len(self)) else Intervals(self._columns, self._places[begin:end])

    def those(self, chosen: Iterable[Any]) -> Intervals:
        """Those for which this is true."""
        places = [*compress(self._places, chosen)]
        return self if len(places) == len(self) else Intervals(self._columns, places)


class _Seen:
    __slots__ = ("_columns", "_place")

    def __init__(self, columns: Columns, place: int) -> None:
        self._columns, self._place = columns, place

    def __getattr__(self, name: str) -> Any:
        return self._columns[name][self._place]


class UsualSteps:
    """Steps that follow one another, and the intervals that end among them.

    Attributes:
        columns: by the names of `StepRecord`.
        phases: the same of `PhaseRecord`; None where none were measured.
        ends_ns: monotonic mark of each step's end.
        ends: of each interval, behind how many of these steps it ends.
    """

    def __init__(self, types: Sequence[Any], columns: Mapping[Any, Sequence[Sequence[Any]]]) -> None:
        self.columns: Columns = dict(zip(StepRecord._fields, columns[StepRecord], strict=True))
        found = columns.get(PhaseRecord)
        self.phases = None if found is None else dict(zip(PhaseRecord._fields, found, strict=True))
        self._totals: dict[str, int | None] = {}
        steps = self.columns
        self.ends_ns = list(map(add, steps["start_ns"], steps["iteration_ns"]))
        for pauses_ns in (steps["eval_ns"], steps["checkpoint_ns"]):
            self.ends_ns = list(map(add, self.ends_ns, pauses_ns)) if any(pauses_ns) else self.ends_ns
        places = [place for place, each in enumerate(types) if each is IntervalRecord]
        records = 1 if self.phases is None else 2  # of a step
        self.ends = [(place - number) // records for number, place in enumerate(places)]

    @classmethod
    def of(cls, types: Sequence[Any], columns: Mapping[Any, Sequence[Sequence[Any]]]) -> UsualSteps | None:
        """None where not all of them are usual."""
        if StepRecord not in columns or not columns.keys() <= {StepRecord, PhaseRecord, IntervalRecord}:
            return None
        made = cls(types, columns)
        return made if made._are_usual() and made._have_their_phases(types) else None

    def __len__(self) -> int:
        return len(self.ends_ns)

    def total(self, name: str) -> int | None:
        """The sum of a column of the steps; None where one of its values is not known."""
        if name not in self._totals:  # several of a fold's parts ask for the same
            self._totals[name] = total(self.columns[name])
        return self._totals[name]

    def sum(self, name: str) -> int:
        """The same of a column in which every value is known."""
        return self.total(name) or 0

    @cached_property
    def phase_totals(self) -> list[int | None]:
        """Of each phase the sum of those that are known; None where none is. Empty without phases."""
        return [known_total(column) for column in [*(self.phases or {}).values()][1:]]

    def one(self, number: int) -> StepRecord:
        """The step at this place, as a record."""
        return StepRecord(*(column[number] for column in self.columns.values()))

    def phases_of(self, number: int) -> PhaseRecord | None:
        """The phases of the step."""
        if self.phases is None:
            return None
        return PhaseRecord(*(column[number] for column in self.phases.values()))

    def _are_usual(self) -> bool:
        steps, count = self.columns, len(self)
        is_alike = steps["outcome"].count(_TRAINED) == steps["iterations"].count(1) == count
        return is_alike and not any(steps["warmup"]) and min(steps["iteration_ns"]) > 0

    def _have_their_phases(self, types: Sequence[Any]) -> bool:
        if self.phases is None:
            return True
        order = [each for each in types if each is not IntervalRecord]
        is_whole = order == [PhaseRecord, StepRecord] * len(self) and None not in self.phases["other_ns"]
        return is_whole and self.phases["iteration"] == self.columns["iteration"]
