"""Marks: when the host's timers start and stop, and how that becomes the phases of an iteration.

A mark is one integer, the clock's reading plus, above it, which of the host's timers starts or stops
(`phases.NUMBER_OF`): `monotonic_ns() + start_of(number)`. The training thread collects marks and puts them
into the ring as they are; the process that empties the ring adds them up here. **The time between two marks
belongs to the innermost phase that is open between them**, so the phases of a step add up to the step,
whatever the host's timers are called and however they are nested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from flagscale_perf.device.marks import CLOCK_BITS, END, start_of, stop_of, time_of
from flagscale_perf.spine.records import EventRecord, Record, tuple_of
from flagscale_perf.training.phases import OTHER, PHASE_OF_NUMBER, PHASES
from flagscale_perf.training.records import MARKS_PER_SLOT, MarksRecord, PhaseRecord, StepRecord

# By the number of a timer; the first of them are the phases' own.
STARTS = tuple(map(start_of, range(len(PHASE_OF_NUMBER))))
STOPS = tuple(map(stop_of, range(len(PHASE_OF_NUMBER))))

_END = END >> CLOCK_BITS
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

    def __init__(self, *keep: Callable[[StepRecord, Sequence[int]], None]) -> None:
        """`keep`: each is given every step and its marks, too."""
        self._held: list[MarksRecord] = []
        self._keep = keep

    def take(self, record: Record) -> list[FileRecord]:
        """Takes the next record; returns the records that it completes."""
        if isinstance(record, MarksRecord):
            self._held.append(record)
            return []
        if not isinstance(record, StepRecord):
            return [record]
        held, self._held = [marks for marks in self._held if marks.iteration == record.iteration], []
        if not held:
            return [record]
        marks = [mark for slot in held for mark in slot.marks]
        if len(marks) != held[0].total:  # some were lost: no phases rather than wrong ones
            marks = []
        for keep in self._keep if marks else ():
            keep(record, marks)
        return [_phases(record, marks), record]


def _phases(step: StepRecord, marks: Sequence[int]) -> PhaseRecord:
    """All None where no marks were taken."""
    if not marks:
        return PhaseRecord._make((step.iteration, *_UNMEASURED))
    own_ns = own_times(marks, step.start_ns, step.start_ns + step.train_step_ns)
    *named, other_ns, _ = own_ns
    return PhaseRecord._make(
        (step.iteration, *[value or None for value in named], other_ns, step.iteration_ns - sum(own_ns))
    )


def starts_of(phase: int, marks: Sequence[int]) -> int:
    """How often the first timer of that phase, which has its number, has started."""
    return sum(mark >> CLOCK_BITS == 2 * phase for mark in marks)


def own_times(marks: Sequence[int], start_ns: int, end_ns: int) -> list[int]:
    """Nanoseconds of each phase in a step; see `spans`."""
    own_ns = [0] * len(PHASES)
    for phase, dur_ns in spans(marks, start_ns, end_ns):
        own_ns[phase] += dur_ns
    return own_ns


def spans(marks: Sequence[int], start_ns: int, end_ns: int) -> list[tuple[int, int]]:
    """`spans_of` marks as they are taken."""
    return spans_of(((mark >> CLOCK_BITS, time_of(mark)) for mark in marks), start_ns, end_ns)


def spans_of(marks: Iterable[tuple[int, int]], start_ns: int, end_ns: int) -> list[tuple[int, int]]:
    """The phases of a step from `start_ns` to `end_ns`, or to the mark END where there is one, with their
    nanoseconds, one after the other.

    A stop also ends what the host has left open inside; one of a phase that is not open ends nothing.
    """
    found = []
    stack, last_ns = [OTHER], start_ns
    for code, at_ns in marks:
        found.append((stack[-1], at_ns - last_ns))
        last_ns = at_ns
        if code == _END:
            return found
        phase, is_stop = PHASE_OF_NUMBER[code >> 1], code & 1
        if not is_stop:
            stack.append(phase)
        elif phase in stack[1:]:  # the first is the step itself
            while stack.pop() != phase:
                pass
    found.append((stack[-1], end_ns - last_ns))
    return found
