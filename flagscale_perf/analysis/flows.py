"""What threads and processes do that wait for one another in no schedule, as the engine of `analysis.replays`
takes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from flagscale_perf.analysis.predictions import Change, Doubt, Prediction

Place = tuple[int, int]  # of a stretch: its lane, and its number there


class Stretch(NamedTuple):
    """What a lane of a flow does until `end_ns`; its stretches follow one another without a gap.

    Attributes:
        phase: the instrument's number of what its time is counted as.
        after: stretches of other lanes that must have ended before: until then it waits.
    """

    phase: int
    end_ns: int
    after: tuple[Place, ...] = ()


class Lane:
    """A lane of a flow as it is being made.

    Attributes:
        number: in the flow.
        begin_ns: of its first stretch.
        stretches: so far.
    """

    def __init__(self, number: int, begin_ns: int) -> None:
        self.number, self.begin_ns = number, begin_ns
        self.stretches: list[Stretch] = []

    @property
    def end_ns(self) -> int:
        """Of what it has so far."""
        return self.stretches[-1].end_ns if self.stretches else self.begin_ns

    def add(self, phase: int, end_ns: int, after: tuple[Place, ...] = ()) -> Place:
        """One more stretch; where it is. None ends before the one before it, whatever rounded figures say."""
        self.stretches.append(Stretch(phase, max(end_ns, self.end_ns), after))
        return self.number, len(self.stretches) - 1

    def waits(self, place: Place, after: Iterable[Place]) -> None:
        """That stretch of this lane waits for these, besides others."""
        own = self.stretches[place[1]]
        self.stretches[place[1]] = own._replace(after=(*own.after, *after))


class Flow(NamedTuple):
    """What threads and processes do that wait for one another now and then, each a lane.

    Attributes:
        begins_ns: of each lane; as all times, on one clock.
        lanes: their stretches.
        units: the ends of the pieces of work that a prediction is of, in their order: calls, steps.
        alike: what kind of piece each is: those of one kind usually take as long.
        each: the prediction is of a mean one of them, from the first one's end on, instead of all.
        evidence: what was recorded, in words.
        notes: what is assumed, a line each.
    """

    begins_ns: Sequence[int]
    lanes: Sequence[Sequence[Stretch]]
    units: Sequence[Place]
    alike: Sequence[object]
    each: bool
    evidence: str
    notes: Sequence[str] = ()


class Made(NamedTuple):
    """A flow as it is replayed: each stretch ends so much later than the last one that it waits for, or than
    the one before it.

    Attributes:
        lags_ns: by lane.
        after: as in `Stretch`, by lane.
    """

    begins_ns: Sequence[int]
    lags_ns: Sequence[Sequence[float]]
    after: Sequence[Sequence[tuple[Place, ...]]]
    units: Sequence[Place]


class Outcomes(NamedTuple):
    """What a change makes of a flow.

    Attributes:
        likely: most likely.
        others: what it may be as well.
        ceiling: the least that it could be, everything else perfect; None where that is not known.
    """

    likely: Made
    others: Sequence[Made]
    ceiling: Made | None = None


class FlowEngine(Protocol):
    """How flows are replayed."""

    def made_of(self, flow: Flow) -> Made:
        """As it was recorded."""

    def ends_of(self, made: Made) -> list[list[float]]:
        """When every stretch ends, by lane."""

    def resized(self, flow: Flow, made: Made, change: Change, phases: Mapping[str, tuple[int, ...]]) -> Made:
        """The flow after a change of durations."""

    def predict(self, flow: Flow, changes: Sequence[Change], made: Outcomes, doubt: Doubt) -> Prediction:
        """What the changes make of it. Raises MissingRecordError where too little was recorded."""
