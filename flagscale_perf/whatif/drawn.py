"""One captured step as it was recorded, and as it is predicted: when each part of each rank ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from flagscale_perf.analysis.replays import Change, DrawnStep, Layout
from flagscale_perf.whatif.graph import Lane
from flagscale_perf.whatif.predicted import Pipelines
from flagscale_perf.whatif.replay import Arrangement, Replay, Times


def drawn(layout: Layout, replays: Sequence[Replay], changes: Sequence[Change]) -> Iterator[DrawnStep]:
    """Every rank, before and after the changes, in the step whose time is the median one. Raises
    MissingRecordError, PerfError as `predict`.
    """
    replay, step = _usual(layout, replays)
    yield from _steps(replay.arrangement, replay.ends(replay.lags_ns), step, is_predicted=False)
    both = Pipelines((layout, replay), changes)
    made, lags = both.put(both.lags)
    yield from _steps(made.arrangement, made.ends(lags), step, is_predicted=True)


def _usual(layout: Layout, replays: Sequence[Replay]) -> tuple[Replay, int]:
    """The step of the median time, and the replay that it is in."""
    found = []
    for number, replay in enumerate(replays):
        began_ns = np.max([own.max(axis=0) for own in replay.arrangement.begin_ns.values()], axis=0)
        counts = replay.is_sound & replay.arrangement.since(layout.since)
        took_ns = (replay.end_ns - began_ns).tolist()
        found += [(took_ns[step], number, step) for step in np.flatnonzero(counts).tolist()]
    _, number, step = sorted(found)[(len(found) - 1) // 2]
    return replays[number], step


def _steps(
    found: Arrangement, ends: Mapping[Lane, Times], step: int, *, is_predicted: bool
) -> Iterator[DrawnStep]:
    for lane, parts in found.graph.parts.items():
        for place, replica in enumerate(found.members[lane.column]):
            yield DrawnStep(
                found.ranks[lane.stage][replica],
                lane.stage,
                found.iterations[step],
                is_predicted,
                parts,
                int(found.begin_ns[lane][place, step]),
                ends[lane][:, place, step].tolist(),
            )
