"""Marks: what the training thread tells of a step's phases, and how they become the phases of its iteration.

A mark is one integer, the clock's reading plus, above it, which phase begins or ends: `monotonic_ns() +
STARTS[phase]`. The training thread collects marks and hands them to the ring as they are; who empties the
ring adds them up here. **The time between two marks belongs to the innermost phase that is open between
them**, so the phases of a step add up to the step, whatever the host names and however it nests the names.
"""

from __future__ import annotations

from collections.abc import Sequence

from flagscale_perf.device.marks import CLOCK_BITS, END, kind_of, start_of, stop_of, time_of
from flagscale_perf.spine.records import EventRecord, Record, tuple_of
from flagscale_perf.training.phases import OTHER, PHASES
from flagscale_perf.training.records import MARKS_PER_SLOT, MarksRecord, PhaseRecord, StepRecord

STARTS = tuple(map(start_of, range(len(PHASES))))
STOPS = tuple(map(stop_of, range(len(PHASES))))

_UNMEASURED: tuple[None, ...] = (None,) * len(PHASES)

FileRecord = StepRecord | PhaseRecord | EventRecord


def in_slots(iteration: int, marks: Sequence[int] | None) -> list[MarksRecord]:
    """A step's marks as records of the ring; None for a step whose phases could not be measured."""
    if not marks:
        return [MarksRecord(iteration, 0, ())]
    total = len(marks)
    if total <= MARKS_PER_SLOT:
        return [tuple_of(MarksRecord, (iteration, total, tuple(marks)))]
    return [
        MarksRecord(iteration, total, tuple(marks[first : first + MARKS_PER_SLOT]))
        for first in range(0, total, MARKS_PER_SLOT)
    ]


class MarksJoin:
    """Records of one ring in, in their order; records of a run file out: each step's phases just before the
    step.
    """

    def __init__(self) -> None:
        self._held: list[MarksRecord] = []

    def take(self, record: Record) -> list[FileRecord]:
        """What the next record gives."""
        if isinstance(record, MarksRecord):
            self._held.append(record)
            return []
        if not isinstance(record, StepRecord):
            return [record]
        held, self._held = [marks for marks in self._held if marks.iteration == record.iteration], []
        return [_phases(record, held), record] if held else [record]


def _phases(step: StepRecord, held: Sequence[MarksRecord]) -> PhaseRecord:
    """All None where none were measured, and where some of the marks were lost: no phases rather than wrong
    ones.
    """
    marks = [mark for record in held for mark in record.marks]
    if not marks or len(marks) != held[0].total:
        return PhaseRecord._make((step.iteration, *_UNMEASURED))
    own_ns = own_times(marks, step.start_ns, step.start_ns + step.train_step_ns)
    *named, other_ns, _ = own_ns
    return PhaseRecord._make(
        (step.iteration, *[value or None for value in named], other_ns, step.iteration_ns - sum(own_ns))
    )


def own_times(marks: Sequence[int], start_ns: int, end_ns: int) -> list[int]:
    """Nanoseconds of each phase in a step from `start_ns` to `end_ns`, or to the mark END where there is one.

    A stop also ends what the host has left open inside; one of a phase that is not open ends nothing.
    """
    own_ns = [0] * len(PHASES)
    stack, last_ns = [OTHER], start_ns
    for mark in marks:
        code, at_ns = mark >> CLOCK_BITS, time_of(mark)
        own_ns[stack[-1]] += at_ns - last_ns
        last_ns = at_ns
        phase, is_stop = code >> 1, code & 1
        if kind_of(mark) == END:
            return own_ns
        if not is_stop:
            stack.append(phase)
        elif phase in stack[1:]:  # the first is the step itself
            while stack.pop() != phase:
                pass
    own_ns[stack[-1]] += end_ns - last_ns
    return own_ns
