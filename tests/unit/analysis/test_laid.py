"""What lies in steps, against sums by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from flagscale_perf.analysis.clocks import Move
from flagscale_perf.analysis.laid import Laid, Spans, Steps, laid_in
from flagscale_perf.analysis.tree import Node

S = 1_000_000_000


def in_steps(steps: Sequence[tuple[int, int]], calls: Sequence[Laid], move: Move | None = None) -> list[Node]:
    return laid_in(Steps(steps), [("rpc", Spans(calls, move))])


def test_calls_lie_in_the_steps_in_which_they_begin_and_time_counts_once() -> None:
    steps = [(0, 10 * S), (20 * S, 30 * S)]
    calls = [
        Laid("score", 1 * S, 3 * S),
        Laid("score", 2 * S, 4 * S),  # at the same time
        Laid("score", 9 * S, 21 * S),  # over the pause
        Laid("score", 12 * S, 13 * S),  # in the pause
        Laid("stop", 40 * S, 41 * S),
    ]
    score, stop = in_steps(steps, calls)
    assert (score.name, score.dur_s) == ("rpc: score", 5.0)
    assert score.note == "3 begin in 1 of 2 steps, 1 outside of all"
    assert (stop.dur_s, stop.note) == (0.0, "0 begin in 0 of 2 steps, 1 outside of all")
    others = in_steps(steps, calls, lambda ns: ns - 20 * S)
    assert [one.note for one in others if one.name == "rpc: stop"] == [
        "1 begin in 1 of 2 steps, 0 outside of all"
    ]
    assert in_steps([], calls[:1]) == [Node("rpc: score", None, note="1, none of them in a step")]


def test_time_in_steps_against_each_millisecond_counted() -> None:
    chance = random.Random(3)
    edges = sorted(chance.sample(range(2000), 40))
    steps = list(zip(edges[::2], edges[1::2], strict=True))
    calls = [(at, at + chance.randrange(1, 60)) for at in (chance.randrange(-50, 2050) for _ in range(300))]
    busy = {ms for begin, end in calls for ms in range(begin, end)}
    inside = {ms for begin, end in steps for ms in range(begin, end)}
    (node,) = in_steps(steps, [Laid("x", *call) for call in calls])
    assert node.dur_s == pytest.approx(len(busy & inside) / S)
    begun = sum(at in inside for at, _ in calls)
    assert node.note.startswith(f"{begun} begin in ") and node.note.endswith(
        f", {300 - begun} outside of all"
    )
