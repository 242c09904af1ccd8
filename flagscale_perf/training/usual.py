"""Usual train steps in columns: trained, none the first after a start, each behind its phases or all without.

Millions of steps are usual, and summed by column; others, and the first ones of a session, one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add
from typing import Any

from flagscale_perf.training.records import IntervalRecord, Outcome, PhaseRecord, StepRecord

Columns = Mapping[str, Sequence[Any]]
_TRAINED = {int(Outcome.TRAINED)}


class UsualSteps:
    """Steps that follow one another, and the intervals that end among them.

    Attributes:
        columns: by the names of `StepRecord`.
        phases: the same of `PhaseRecord`; None where none were measured.
        ends_ns: monotonic mark of each step's end.
        stretches: of each interval, where its steps begin and end here.
    """

    def __init__(self, types: Sequence[Any], columns: Mapping[Any, Sequence[Sequence[Any]]]) -> None:
        self.columns: Columns = dict(zip(StepRecord._fields, columns[StepRecord], strict=True))
        found = columns.get(PhaseRecord)
        self.phases = None if found is None else dict(zip(PhaseRecord._fields, found, strict=True))
        steps = self.columns
        self.ends_ns = list(map(add, steps["start_ns"], steps["iteration_ns"]))
        for pauses_ns in (steps["eval_ns"], steps["checkpoint_ns"]):
            self.ends_ns = list(map(add, self.ends_ns, pauses_ns)) if any(pauses_ns) else self.ends_ns
        places = [place for place, each in enumerate(types) if each is IntervalRecord]
        records = 1 if self.phases is None else 2  # of a step
        stops = [(place - number) // records for number, place in enumerate(places)]
        self.stretches = list(zip([0, *stops], stops, strict=False))

    @classmethod
    def of(cls, types: Sequence[Any], columns: Mapping[Any, Sequence[Sequence[Any]]]) -> UsualSteps | None:
        """None where not all of them are usual."""
        if StepRecord not in columns or not columns.keys() <= {StepRecord, PhaseRecord, IntervalRecord}:
            return None
        made = cls(types, columns)
        return made if made._are_usual() and made._have_their_phases(types) else None

    def __len__(self) -> int:
        return len(self.ends_ns)

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
        is_alike = {*steps["outcome"]} == _TRAINED and {*steps["iterations"]} == {1}
        return is_alike and not any(steps["warmup"]) and min(steps["iteration_ns"]) > 0

    def _have_their_phases(self, types: Sequence[Any]) -> bool:
        if self.phases is None:
            return True
        order = [each for each in types if each is not IntervalRecord]
        is_whole = order == [PhaseRecord, StepRecord] * len(self) and None not in self.phases["other_ns"]
        return is_whole and self.phases["iteration"] == self.columns["iteration"]
