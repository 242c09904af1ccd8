"""Flows replayed: threads and processes that wait for one another now and then, in no schedule."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from flagscale_perf.analysis.flows import Flow, Made, Outcomes, Place
from flagscale_perf.analysis.predictions import Change, Doubt, MissingRecordError, Prediction
from flagscale_perf.analysis.replays import NotKnownError
from flagscale_perf.spine.averages import mean, median
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.whatif import intervals
from flagscale_perf.whatif.changes import PEERS, numbers_of, time_ns

MIN_UNITS = 8  # of fewer nobody knows how far others would be
_CHUNKS = 256  # that are drawn from; of more units neighbours are taken together


def made_of(flow: Flow) -> Made:
    """The flow as it was recorded. What ended later than what is said to have waited for it did not hold it
    up: clocks of machines, or the records, are not as exact.
    """
    lags_ns, afters = list[list[float]](), list[list[tuple[Place, ...]]]()
    for begin_ns, lane in zip(flow.begins_ns, flow.lanes, strict=True):
        own_lags, own_afters, before_ns = list[float](), list[tuple[Place, ...]](), begin_ns
        for one in lane:
            ends = {place: flow.lanes[place[0]][place[1]].end_ns for place in one.after}
            after = tuple(place for place, end_ns in ends.items() if end_ns <= one.end_ns)
            own_lags.append(one.end_ns - max([before_ns, *(ends[place] for place in after)]))
            own_afters.append(after)
            before_ns = one.end_ns
        lags_ns.append(own_lags)
        afters.append(own_afters)
    return Made(flow.begins_ns, lags_ns, afters, flow.units)


def ends_of(made: Made) -> list[list[float]]:
    """When every stretch ends. Raises NotKnownError where some wait for one another."""
    waiting = {
        (lane, at): set(after) for lane, own in enumerate(made.after) for at, after in enumerate(own) if after
    }
    ends: list[list[float]] = [[] for _ in made.lags_ns]

    def until(lane: int, last: int) -> None:
        own, lags = ends[lane], made.lags_ns[lane]
        for at in range(len(own), last + 1):
            came = [ends[other][number] for other, number in made.after[lane][at]]
            own.append(max([own[-1] if own else made.begins_ns[lane], *came]) + lags[at])

    for lane, at in _order(waiting):
        until(lane, at)
    for lane, own in enumerate(made.lags_ns):
        until(lane, len(own) - 1)
    return ends


def _order(waiting: Mapping[Place, set[Place]]) -> list[Place]:
    """Those that wait and those that are waited for, each behind what comes before it."""
    before: dict[Place, set[Place]] = {place: set(after) for place, after in waiting.items()}
    of_lane: dict[int, set[int]] = defaultdict(set)
    for lane, at in [*waiting, *(place for after in waiting.values() for place in after)]:
        of_lane[lane].add(at)
    for lane, numbers in of_lane.items():
        ordered = sorted(numbers)
        for earlier, later in zip(ordered, ordered[1:], strict=False):
            before.setdefault((lane, later), set()).add((lane, earlier))
    try:
        return [*TopologicalSorter(before).static_order()]
    except CycleError:
        raise NotKnownError("what is recorded to wait for one another ends at no time") from None


def resized(flow: Flow, made: Made, change: Change, phases: Mapping[str, tuple[int, ...]]) -> Made:
    """The flow after a change of durations, which of a wait are those of the transfer alone."""
    if change.value == PEERS:
        raise PerfError(f"{change.text!r}: here a duration may be changed of all alike, such as NAME*=0.5")
    numbers = {*numbers_of(change.name, phases)}
    by_ns = time_ns(change.value)

    def of(lag_ns: float) -> float:
        if change.how == "*=":
            return lag_ns * float(change.value)
        return {"=": by_ns, "+=": lag_ns + by_ns}.get(change.how, max(0.0, lag_ns - by_ns))

    lags_ns = [
        [of(lag) if one.phase in numbers else lag for one, lag in zip(lane, own, strict=False)]
        + [*own[len(lane) :]]
        for lane, own in zip(flow.lanes, made.lags_ns, strict=True)
    ]
    return made._replace(lags_ns=lags_ns)


def predict(flow: Flow, changes: Sequence[Change], made: Outcomes, doubt: Doubt) -> Prediction:
    """What the changes make of the flow: measured + (replay of the change - replay of what was)."""
    if not changes:
        raise PerfError("there is no change to predict; write one, such as bytes=0.5")
    text = " ".join(change.text for change in changes)
    if chosen := next((change.where for change in changes if change.where), ""):
        raise PerfError(f"{chosen!r} chooses nothing here: what is changed is changed of all alike")
    if len(flow.units) < MIN_UNITS:
        raise MissingRecordError(
            text, f"at least {MIN_UNITS} calls or steps, and there are {len(flow.units)}", "run longer"
        )
    kind = max(change.kind for change in changes)
    recorded_ns = [flow.lanes[lane][at].end_ns for lane, at in flow.units]
    measured_ns, usual_ns = _took(flow, recorded_ns), _of(flow, made.likely)
    others = [abs(_of(flow, one) - usual_ns) for one in made.others]
    base = {
        "replay": max(others, default=0.0),
        "sampling": _sampling(flow, recorded_ns) * usual_ns / measured_ns,
        "drift": intervals.drift(doubt, usual_ns),
    }
    expected_ns = intervals.expected(kind, measured_ns, usual_ns)
    parts, plain_ns = intervals.recorded(kind, base, expected_ns, doubt)
    half_ns, scores = intervals.together(parts), doubt.scores.get(kind, ())
    return Prediction(
        text=text,
        kind=kind,
        measured_ns=measured_ns,
        predicted_ns=usual_ns,
        low_ns=max(0.0, usual_ns - half_ns),
        high_ns=usual_ns + half_ns,
        parts=parts,
        plain_ns=plain_ns,
        ceiling_ns=None if made.ceiling is None else _of(flow, made.ceiling),
        steps=len(flow.units),
        evidence=flow.evidence,
        checked=(sum(is_hit for _, is_hit in scores), len(scores)),
        gain_half_ns=intervals.of_gain(kind, base["replay"], usual_ns - measured_ns, doubt),
        notes=flow.notes,
    )


def _of(flow: Flow, made: Made) -> float:
    ends = ends_of(made)
    return _took(flow, [ends[lane][at] for lane, at in made.units])


def _took(flow: Flow, ends_ns: Sequence[float]) -> float:
    if flow.each:
        return max(1.0, (max(ends_ns) - min(ends_ns)) / max(1, len(ends_ns) - 1))
    return max(1.0, max(ends_ns) - min(flow.begins_ns))


def _sampling(flow: Flow, recorded_ns: Sequence[int]) -> float:
    """How far all pieces together, or a mean one, would be from as many others of the same kinds."""
    ordered = sorted(zip(recorded_ns, map(str, flow.alike), strict=True))
    before_ns, took = min(flow.begins_ns), list[tuple[str, int]]()
    if flow.each:
        before_ns = ordered.pop(0)[0]
    of_kind: dict[str, list[int]] = defaultdict(list)
    for end_ns, kind in ordered:
        took.append((kind, end_ns - before_ns))
        of_kind[kind].append(end_ns - before_ns)
        before_ns = end_ns
    usual = {kind: median(each) for kind, each in of_kind.items()}
    size = math.ceil(len(took) / _CHUNKS)
    rest = [ns - usual[kind] for kind, ns in took]
    chunks = [sum(rest[at : at + size]) for at in range(0, len(rest), size)]
    return intervals.sampling(chunks, mean) * len(chunks) / (len(rest) if flow.each else 1)
