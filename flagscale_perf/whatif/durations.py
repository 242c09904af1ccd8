"""Changes of durations in the graph that was recorded: scaled, set, longer, as the peers', equal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flagscale_perf.analysis.replays import Change, Kind, Layout, MissingRecordError
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.whatif.changes import EQUAL, PEERS, chosen, numbers_of, time_ns
from flagscale_perf.whatif.graph import PASSES, Lane, Parts
from flagscale_perf.whatif.replay import Arrangement, Replay, Times

Lags = dict[Lane, Times]
Places = npt.NDArray[np.intp]
Wanted = npt.NDArray[np.floating[Any]]


def changed(layout: Layout, replay: Replay, changes: Sequence[Change]) -> Lags:
    """The lags of all parts after these changes, one behind the other. Raises MissingRecordError, and
    PerfError where one is about no rank of this run.
    """
    lags, found = dict(replay.lags_ns), replay.arrangement
    for change in changes:
        places = dict(_chosen(layout, found, change))
        if not places:
            last = len(layout.stages) - 1
            raise PerfError(f"{change.where!r} chooses no rank: this run has ranks 0 to {last}")
        lags |= {lane: lags[lane].copy() for lane in places}
        if change.value == EQUAL:
            _equal(found, lags, places)
        elif change.value == PEERS:
            _as_peers(layout, found, lags, (places, change))
        else:
            _resize(layout, found, lags, (places, change))
    return lags


def _resize(
    layout: Layout, found: Arrangement, lags: Lags, told: tuple[Mapping[Lane, Places], Change]
) -> None:
    """Raises MissingRecordError where the captured steps have nothing of these phases."""
    places, change = told
    numbers, is_there = numbers_of(change.name, layout.phases), False
    for lane, own in places.items():
        parts = found.graph.parts[lane]
        turns = turns_of(parts, numbers)
        if turns is not None:
            if layout.overlaps and any(parts[at].kind is Kind.MESSAGE for at in turns.rows):
                raise MissingRecordError(
                    change.text,
                    "what a message takes: they pass beside computing",
                    "some steps with --no-overlap-p2p-communication --perf-capture-steps 20",
                )
            put(lags[lane], turns, own, _resized(sums(lags[lane], turns)[:, own], change))
            is_there = True
    if not is_there:
        raise MissingRecordError(
            change.text,
            f"a part of the captured steps that is {change.name}: the host times none there",
            "some steps of a job that has it, with --perf-capture-steps 20",
        )


def _chosen(layout: Layout, found: Arrangement, change: Change) -> Iterator[tuple[Lane, Places]]:
    """By lane, which of its replicas it is about: of ranks that work on the same all, as none of these is
    through without the others.
    """
    width = layout.tensor_parallel
    for lane in found.graph.parts:
        if chosen(change.where, "stage", lane.stage):
            ranks = found.ranks[lane.stage]
            groups = {at // width for at, rank in enumerate(ranks) if chosen(change.where, "rank", rank)}
            own = [at for at, replica in enumerate(found.members[lane.column]) if replica // width in groups]
            if own:
                yield lane, np.array(own)


class Turns(NamedTuple):
    """What some phases have in a step: passes, data and calls within these left out, or single parts.

    Attributes:
        rows: the parts of all turns.
        starts: which of these begin a turn.
        ends: which of these end one.
    """

    rows: Sequence[int]
    starts: Sequence[int]
    ends: Sequence[int]

    def __len__(self) -> int:
        return len(self.starts)


def turns_of(parts: Parts, numbers: Sequence[int]) -> Turns | None:
    """All turns of these phases in their order; None where the step has none."""
    passes = {part.phase for part in parts if part.kind in PASSES}
    rows, ends = list[int](), list[int]()
    waiting: dict[int, list[int]] = defaultdict(list)  # of a pass that has not ended, by phase
    for at, part in enumerate(parts):
        if part.phase in numbers:
            waiting[part.phase].append(at)
            if part.phase not in passes or part.kind in PASSES:
                rows += waiting.pop(part.phase)
                ends.append(len(rows) - 1)
    return Turns(rows, [0, *(end + 1 for end in ends[:-1])], ends) if ends else None


def sums(lags_ns: Times, turns: Turns) -> Times:
    """By turn, replica and step; what is below 0 is no transfer, and none of a duration."""
    found: Times = np.add.reduceat(lags_ns[turns.rows].clip(0), turns.starts)
    return found


def put(lags_ns: Times, turns: Turns, places: Places, wanted_ns: Wanted) -> None:
    """Resizes each turn of these replicas to that: all its parts by one factor, or where they took no time
    its last one.
    """
    at = np.ix_(np.array(turns.rows), places)
    own = lags_ns[at].clip(0)
    factors = wanted_ns / np.maximum(np.add.reduceat(own, turns.starts), 1)
    made = (own * factors.repeat(np.diff([*turns.starts, len(turns.rows)]), axis=0)).astype(np.int64)
    made[turns.ends] += np.rint(wanted_ns).astype(np.int64) - np.add.reduceat(made, turns.starts)
    lags_ns[at] += made - own


def _resized(total_ns: Times, change: Change) -> Wanted:
    by_ns = 0 if change.how == "*=" else time_ns(change.value)
    factor = float(change.value) if change.how == "*=" else float(change.how != "=")
    resized: Wanted = total_ns * factor + (-by_ns if change.how == "-=" else by_ns)
    return resized.clip(0)


def _as_peers(
    layout: Layout, found: Arrangement, lags: Lags, told: tuple[Mapping[Lane, Places], Change]
) -> None:
    """Each turn as long as the median of the same turn of the stage's other replicas: those that are not
    changed, or where all of them are, all others. Where there are none, as long as it was itself in earlier
    steps.
    """
    places, change = told
    is_past = ~found.since(layout.since)
    numbers, wanted = numbers_of(change.name, layout.phases), []
    turns = {lane: turns_of(parts, numbers) for lane, parts in found.graph.parts.items()}
    for lane, own in places.items():
        own_turns = turns[lane]
        if own_turns is None:
            continue
        beside = [
            (other, np.array(found.members[other.column]), sums(lags[other], theirs))
            for other, theirs in turns.items()
            if other.stage == lane.stage and theirs is not None and len(theirs) == len(own_turns)
        ]
        replicas, table, are_changed = _stacked(beside, places)
        replicas //= layout.tensor_parallel
        for place in own.tolist():
            group = found.members[lane.column][place] // layout.tensor_parallel
            others = ~are_changed if not are_changed.all() else replicas != group
            if others.any():
                usual_ns = np.median(table[:, others], axis=1)
            elif is_past.any():
                own_past = sums(lags[lane][:, [place]][:, :, is_past], own_turns)
                usual_ns = np.broadcast_to(np.median(own_past, axis=2), (len(own_turns), len(is_past)))
            else:
                raise _no_peers(found.ranks[lane.stage][found.members[lane.column][place]], change)
            wanted.append((lane, own_turns, np.array([place]), usual_ns))
    for lane, own_turns, place, usual_ns in wanted:
        put(lags[lane], own_turns, place, usual_ns[:, None])


def _stacked(
    beside: Sequence[tuple[Lane, npt.NDArray[np.int64], Times]], places: Mapping[Lane, Places]
) -> tuple[npt.NDArray[np.int64], Times, npt.NDArray[np.bool_]]:
    """Replicas of several lanes side by side: their numbers, their turns, and whether they are changed."""
    return (
        np.concatenate([numbers for _, numbers, _ in beside]),
        np.concatenate([turns for _, _, turns in beside], axis=1),
        np.concatenate([np.isin(np.arange(len(each)), places.get(lane, [])) for lane, each, _ in beside]),
    )


def _no_peers(rank: int, change: Change) -> MissingRecordError:
    return MissingRecordError(
        change.text,
        f"peers of rank {rank}: its stage has no other replica, and no earlier steps of its own are captured",
        "flagscale-perf capture RUN --steps 20, while the rank is as fast as it should be",
    )


def _equal(found: Arrangement, lags: Lags, places: Mapping[Lane, Places]) -> None:
    """Each pass of a stage as long as the mean of all its replicas and micro-batches."""
    for kind in PASSES:
        of_stage = defaultdict(list)
        for lane, own in places.items():
            parts = found.graph.parts[lane]
            phase = next(part.phase for part in parts if part.kind is kind)
            turns = turns_of(parts, [phase])
            if turns is not None:
                of_stage[lane.stage].append((lane, turns, own, sums(lags[lane], turns)[:, own]))
        for every in of_stage.values():
            steps = every[0][3].shape[2]
            usual_ns = np.concatenate([each[3].reshape(-1, steps) for each in every]).mean(axis=0)
            for lane, turns, own, total_ns in every:
                put(lags[lane], turns, own, np.broadcast_to(usual_ns, total_ns.shape))
