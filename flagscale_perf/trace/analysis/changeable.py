"""A queue's run as the engine that predicts changes of it takes it: more storage units, more producers, how
far these may be ahead, and any function or operation faster or slower.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from flagscale_perf.analysis.changeable import ChangeableFlow
from flagscale_perf.analysis.fit import non_negative
from flagscale_perf.analysis.flows import Flow, Made, Outcomes, Place
from flagscale_perf.analysis.predictions import (
    Change,
    Check,
    MissingRecordError,
    Prediction,
)
from flagscale_perf.analysis.replays import Engine
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.trace.analysis.flow import BETWEEN, GET, PUT, QueueFlow, flow_of
from flagscale_perf.trace.analysis.source import read_traces

UNITS, PRODUCERS, CAPACITY = "units", "producers", "capacity"
_ALONE = 1.5  # pieces of a producer for each step; with fewer, more producers share each piece
_FIRST = 3  # operations of fewer sizes tell no cost of a byte


def _more(value: str) -> str | None:
    return f"+{int(value[1:])}" if value[:1] == "+" and value[1:].isdecimal() and int(value[1:]) else None


def _times(value: str) -> str | None:
    return f"x{int(value[1:])}" if value[:1] == "x" and value[1:].isdecimal() and int(value[1:]) else None


CHECKS: Mapping[str, Check] = {
    UNITS: ("B", _more, "=+N: so many storage units more"),
    PRODUCERS: ("B", _times, "=xN, such as x2: twice as many processes"),
    CAPACITY: ("B", _more, "=+N: so many steps more that producers may be ahead"),
}


class ChangeableQueue(ChangeableFlow):
    """One run of a queue, which predicts itself."""

    checks: Mapping[str, Check] | None = CHECKS
    of, perfect = "step of the last consumer", "it never waited for samples"

    def __init__(self, session: Session) -> None:
        """Reads it."""
        traces = read_traces(session)
        self._known = None if traces.transfers is None else flow_of(traces.transfers)
        sums = traces.sums.operations.values()
        self._units = len({unit for one in sums for unit in (*one.units, *one.waits)})

    @property
    def phases(self) -> Mapping[str, tuple[int, ...]]:
        """Functions, else processes by what they are; puts, gets, and what is between calls."""
        return self._queue().phases

    @property
    def flow(self) -> Flow:
        """The run. Raises MissingRecordError where it does not tell who waits for whom."""
        return self._queue().flow

    def _queue(self) -> QueueFlow:
        if self._known is None:
            raise MissingRecordError(
                "what if",
                "who waits for whom: each process's puts, gets and requests, with the samples they are about",
                "TQ_TRACE_ENABLED=1 TQ_TRACE_DETAIL_ENABLED=1 with the run, then give its run file",
            )
        return self._known

    def outcomes(self, found: Engine, base: Made, told: Sequence[Change]) -> Outcomes:
        """Most likely, and what else it may be. Raises MissingRecordError, PerfError."""
        made = [base]
        # those that only change times come before the one that moves stretches to other lanes
        for name, ways in (
            (UNITS, self._more_units),
            (CAPACITY, self._further),
            (PRODUCERS, self._producers),
        ):
            for change in told:
                if change.name == name:
                    made = [after for one in made for after in ways(one, change)]
        return Outcomes(made[0], made[1:], self._perfect(made[0]))

    def _more_units(self, made: Made, change: Change) -> list[Made]:
        """Each unit has a smaller part of the bytes. What it takes besides may stay, or shrink, too."""
        moved = {
            place: (one.size_bytes, one.unit_ns)
            for place, one in self._queue().moved.items()
            if one.size_bytes is not None and one.unit_ns is not None
        }
        sizes = {size for size, _ in moved.values()}
        if not self._units or len(sizes) < _FIRST:
            raise MissingRecordError(
                change.text,
                f"puts and gets of {_FIRST} sizes with their units' times; there are {len(sizes)}",
                "TQ_TRACE_DETAIL_ENABLED=1 with the run",
            )
        every = [(size, unit_ns) for size, unit_ns in moved.values() if unit_ns]
        _, byte_ns = non_negative(
            [(1.0, float(size)) for size, _ in every],
            [float(unit_ns) for _, unit_ns in every],
            [1 / unit_ns**2 for _, unit_ns in every],
        )
        less = 1 - self._units / (self._units + int(change.value))
        ways: list[Callable[[int, int], float]] = [
            lambda size, unit_ns: min(unit_ns, byte_ns * size) * less,
            lambda size, unit_ns: 0.0,
            lambda size, unit_ns: unit_ns * less,
        ]
        return [_shorter(made, {place: way(*one) for place, one in moved.items()}) for way in ways]

    def _further(self, made: Made, change: Change) -> list[Made]:
        """Producers that waited for a step wait for an earlier one."""
        known, by = self._queue(), int(change.value)
        if not known.rooms:
            raise PerfError(f"{change.text!r}: the producers of this run wait for no step")
        after = [[*own] for own in made.after]
        for (lane, at), step in known.rooms.items():
            others = [place for place in after[lane][at] if place != made.units[step]]
            after[lane][at] = (*others, made.units[step - by]) if step >= by else tuple(others)
        return [made._replace(after=after)]

    def _producers(self, made: Made, change: Change) -> list[Made]:
        """Pieces in turns by so many processes where each makes several a step; else they share each piece,
        and how much sooner that is done is not sure.
        """
        known, times = self._queue(), int(change.value[1:])
        pieces = sum(map(len, known.makers.values())) / max(1, len(known.makers))
        if known.rooms and pieces < _ALONE * len(known.flow.units):
            return [self._faster(made, factor) for factor in (1 / times, 1.0)]
        return [_in_turns(made, known.makers, times)]

    def _faster(self, made: Made, factor: float) -> Made:
        known = self._queue()
        others = {number for name in (BETWEEN, GET, PUT) for number in known.phases[name]}
        return self._scaled(made, known.makers, lambda phase: 1.0 if phase in others else factor)

    def _perfect(self, made: Made) -> Made:
        """The last consumer's processes wait for nothing."""
        users, waits = {*self._queue().users}, self.phases[BETWEEN]
        made = self._scaled(made, users, lambda phase: 0.0 if phase in waits else 1.0)
        after = [[()] * len(own) if lane in users else own for lane, own in enumerate(made.after)]
        return made._replace(after=after)

    def _scaled(self, made: Made, chosen: Collection[int], factor: Callable[[int], float]) -> Made:
        """The stretches of these lanes by the factor of their phase."""
        lanes = self.flow.lanes
        lags_ns = [
            [lag * factor(one.phase) for one, lag in zip(lanes[lane], own, strict=True)]
            if lane in chosen
            else own
            for lane, own in enumerate(made.lags_ns)
        ]
        return made._replace(lags_ns=lags_ns)

    def usual_ns(self, text: str) -> float:
        """The mean step of the last consumer."""
        del text
        flow = self.flow
        ends = [flow.lanes[lane][at].end_ns for lane, at in flow.units]
        return (max(ends) - min(ends)) / max(1, len(ends) - 1)

    def flag_of(self, change: Change) -> str:
        """TransferQueue's own option for that change; "" where there is none."""
        return "num_data_storage_units" if change.name == UNITS else ""

    def rates(self, prediction: Prediction) -> Mapping[str, float]:
        """For how much of its time the last consumer waits, and how old its samples are, by the replay."""
        known, found = self._queue(), self.engine()
        made = self.made(found, found.changes([prediction.text], self.phases, self.checks)).likely
        ends = found.ends_of(made)
        steps = sorted(ends[lane][at] for lane, at in made.units)
        ages, waited, whole = list[int](), 0.0, 0.0
        for lane in known.users:
            own, before = ends[lane], made.begins_ns[lane]
            whole += own[-1] - before
            for at, after in enumerate(made.after[lane]):
                if after:
                    waited += own[at] - max(own[at - 1] if at else before, before)
                    came = min(ends[other][number] for other, number in after)
                    ages.append(bisect_right(steps, own[at]) - bisect_right(steps, came))
        found_rates = {"consumer waits, %": 100 * waited / whole} if whole else {}
        return {**found_rates, **({"age, steps": sum(ages) / len(ages)} if ages else {})}

    def tried(self) -> Iterator[Change]:
        """One more unit, twice the producers, a step further ahead, and each duration halved."""
        yield Change(UNITS, "=", "+1", "", "B")
        yield Change(PRODUCERS, "=", "x2", "", "B")
        yield Change(CAPACITY, "=", "+1", "", "B")
        yield from (Change(name, "*=", "0.5", "", "A") for name in self.phases)


def _shorter(made: Made, saved_ns: Mapping[Place, float]) -> Made:
    """These stretches in so much less time, at least in none."""
    lags_ns = [[*own] for own in made.lags_ns]
    for (lane, at), saved in saved_ns.items():
        lags_ns[lane][at] = max(0.0, lags_ns[lane][at] - saved)
    return made._replace(lags_ns=lags_ns)


def _in_turns(made: Made, makers: Mapping[int, Sequence[int]], times: int) -> Made:
    """The pieces of each maker's lane by so many lanes in turns, which all begin when it began."""
    begins_ns, lags_ns, after = [*made.begins_ns], [*made.lags_ns], [*made.after]
    places: dict[Place, Place] = {}
    for lane, pieces in makers.items():
        own_lags, own_after = made.lags_ns[lane], made.after[lane]
        lanes = [lane, *range(len(begins_ns), len(begins_ns) + times - 1)]
        begins_ns += [made.begins_ns[lane]] * (times - 1)
        new_lags: list[list[float]] = [[] for _ in lanes]
        new_after: list[list[tuple[Place, ...]]] = [[] for _ in lanes]
        bounds = [0, *pieces[1:], len(own_lags)]
        for turn, (first, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
            who = turn % times
            for at in range(first, end):
                places[lane, at] = lanes[who], len(new_lags[who])
                new_lags[who].append(own_lags[at])
                new_after[who].append(own_after[at])
        lags_ns[lane], after[lane] = new_lags[0], new_after[0]
        lags_ns += new_lags[1:]
        after += new_after[1:]
    moved = [[tuple(places.get(place, place) for place in each) for each in own] for own in after]
    return Made(begins_ns, lags_ns, moved, [places.get(place, place) for place in made.units])
