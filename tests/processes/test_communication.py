"""Planted waiting is found as waiting, and as nothing else, on two real ranks.

Both runs are measured against what their programs saw themselves, since a busy machine sleeps longer than it
was told to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import pytest

from flagscale_perf.profile.analysis.communication import Operation, RankCollectives, operations_of
from flagscale_perf.profile.analysis.waits import bubbles_of
from tests.gloo_ranks import two_ranks
from tests.gloo_waits import MICROBATCHES, PLANTED_MS, STEPS

pytestmark = pytest.mark.alone
MS = 1_000_000
ATTEMPTS = 4  # on a machine that is busy with something else
NOISE = 0.08  # between two arms in which nothing was planted; more of it, and busbw says nothing


def measured(directory: Path, *what: str) -> tuple[list[RankCollectives], list[dict]]:
    directory.mkdir()
    said = two_ranks("tests.gloo_waits", directory, *what)
    ranks = [
        RankCollectives(
            rank, "one", {"world_size": 2, "pipeline": rank, "pipeline_size": 2}, each["collectives"]
        )
        for rank, each in enumerate(said)
    ]
    return ranks, said


def bus(operations: Sequence[Operation]) -> float:
    """Median speed of the fastest third of their transfers: the others met something else on this machine."""
    speeds = sorted(operation.busbw_gb_per_s or 0 for operation in operations)
    return median(speeds[-(len(speeds) // 3) :])


def quiet(
    directory: Path, wanted: Callable[[list[Operation]], bool]
) -> tuple[dict[int, list[Operation]], list[tuple[int, int]]]:
    """All-reduces by what was planted, and the program's own times, of the first run in which the machine
    itself did not change between two arms with nothing planted.
    """
    for attempt in range(ATTEMPTS):
        ranks, said = measured(directory / str(attempt), "stragglers")
        reduced = [each for each in operations_of(ranks) if each.operation == "all_reduce"]
        told = [tuple(each) for each in said[1]["said"]]
        by_planted = {
            planted: [each for each, (was, _) in zip(reduced, told, strict=True) if was == planted]
            for planted in PLANTED_MS
        }
        if wanted(by_planted[0]):
            return by_planted, told
    pytest.skip(
        f"in {ATTEMPTS} runs two arms with nothing planted were not alike: other programs"
        f" keep the machine busy (load {os.getloadavg()[0]:.0f})"
    )


def is_steady(unplanted: list[Operation]) -> bool:
    """Whether every second one is as fast as the others, and no queue for the cores changes that later."""
    return (
        os.getloadavg()[0] < 2 * (os.cpu_count() or 1)
        and abs(bus(unplanted[::2]) / bus(unplanted[1::2]) - 1) < NOISE
    )


def skew(operations: Sequence[Operation]) -> float:
    """By how much rank 1 comes later than rank 0, in the middle."""
    return median(each.sides[1].start_ns - each.sides[0].start_ns for each in operations)


def is_even(unplanted: list[Operation]) -> bool:
    """Whether both halves of an arm with nothing planted have the same skew of their own, and little of it:
    half of what the smallest delay may be off.
    """
    return (
        max(abs(skew(unplanted[::2]) - skew(unplanted[1::2])), abs(skew(unplanted)))
        < 0.5 * 0.05 * PLANTED_MS[1] * MS
    )


def test_a_straggler_is_waiting_whatever_its_size(tmp_path: Path) -> None:
    found, told = quiet(tmp_path, is_even)
    own = skew(found[0])
    for planted in PLANTED_MS[1:]:
        slept = [took for was, took in told if was == planted]
        apart = [
            (each.sides[0].wait_ns or 0) - took - own
            for each, took in zip(found[planted], slept, strict=True)
        ]
        assert abs(median(apart)) < 0.05 * planted * MS, f"{planted} ms"
        assert median(each.sides[1].wait_ns or 0 for each in found[planted]) == 0


def test_a_straggler_does_not_slow_the_links(tmp_path: Path) -> None:
    found, _ = quiet(tmp_path, is_steady)
    for planted in PLANTED_MS[1:]:
        assert bus(found[planted]) == pytest.approx(bus(found[0]), rel=0.15), f"{planted} ms"
    naive = median((each.size_bytes or 0) / each.sides[0].total_ns for each in found[80])
    assert naive < bus(found[80]) / 5  # what one rank alone sees


def truth(slept: Sequence[Sequence[int]]) -> list[int]:
    """Waiting of both stages for their messages, if these took no time and both began each step together."""
    waits = [0, 0]
    for step in range(STEPS):
        first, second = (
            iter(each[2 * MICROBATCHES * step : 2 * MICROBATCHES * (step + 1)]) for each in slept
        )
        now = [next(first), 0]
        sent = [now[0]]
        for number in range(MICROBATCHES):
            if number + 1 < MICROBATCHES:
                now[0] += next(first)
                sent.append(now[0])
            waits[1] += max(0, sent[number] - now[1])
            now[1] = max(sent[number], now[1]) + next(second) + next(second)
            waits[0] += max(0, now[1] - now[0])
            now[0] = max(now[0], now[1]) + next(first)
    return waits


@pytest.mark.parametrize("times_ms", [(20, 20, 40, 40), (10, 20, 20, 40)])
def test_the_bubble_is_what_the_stages_delays_make_it(
    tmp_path: Path, times_ms: tuple[int, int, int, int]
) -> None:
    ranks, said = measured(tmp_path / "run", "pipeline", *map(str, times_ms))
    steps = {rank: each["said"]["steps_ns"] for rank, each in enumerate(said)}
    expected = truth([each["said"]["slept_ns"] for each in said])
    found = bubbles_of(operations_of(ranks), ranks, steps)
    assert [(each.stage, each.steps, each.microbatches) for each in found] == [
        (0, STEPS, MICROBATCHES), (1, STEPS, MICROBATCHES),
    ]  # fmt: skip
    for each in found:
        assert each.bubble_ns == pytest.approx(expected[each.rank], rel=0.10)
    if times_ms[0] == times_ms[1]:
        assert found[0].ideal_share == 1 / 5
        assert found[0].share == pytest.approx(1 / 5, rel=0.10)


def test_the_truth_is_the_textbooks_where_stages_take_equally_long() -> None:
    """Forward 1, backward 2: stage 0 waits for 1 + 2 in each step, stage 1 for the first forward pass."""
    first, second = [1, 1, 2, 1, 2, 1, 2, 2] * STEPS, [1, 2] * MICROBATCHES * STEPS
    assert truth([first, second]) == [3 * STEPS, 1 * STEPS]
