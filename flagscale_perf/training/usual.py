"""Usual train steps in columns: trained, none the first after a start, each behind its phases or all without.

Millions of steps are usual, and summed by column, in half the time; others, and the first ones of a session,
one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from flagscale_perf.training.columns import Columns, highest_of, known_total, lowest_of, sums_of, total
from flagscale_perf.training.records import IntervalRecord, Outcome, PhaseRecord, StepRecord

_TRAINED = int(Outcome.TRAINED)


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
        pauses = [name for name in ("eval_ns", "checkpoint_ns") if self.total(name)]
        self.ends_ns = sums_of([steps[name] for name in ("start_ns", "iteration_ns", *pauses)])
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
        steps = self.columns
        wanted = {"outcome": _TRAINED, "iterations": 1, "warmup": 0}
        are_alike = (
            lowest_of(steps[name]) == value == highest_of(steps[name]) for name, value in wanted.items()
        )
        return all(are_alike) and lowest_of(steps["iteration_ns"]) > 0

    def _have_their_phases(self, types: Sequence[Any]) -> bool:
        if self.phases is None:
            return True
        order = [each for each in types if each is not IntervalRecord]
        is_whole = order == [PhaseRecord, StepRecord] * len(self) and None not in self.phases["other_ns"]
        return is_whole and self.phases["iteration"] == self.columns["iteration"]
