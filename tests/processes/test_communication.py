"""Planted waiting is found as waiting, and as nothing else, on real ranks.

What is measured is held against what the ranks say themselves: when they came, when they were done, and how
long their passes took, since a busy machine sleeps longer than it was told to and sends more slowly. So these
bars hold on a busy machine, too.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from tests.function_waits import LATE_S
from tests.gloo_ranks import two_ranks
from tests.planted_waits import MS, pipelines, stragglers, truth

ALL, SOME = (1, 2, 4, 8, 16), (1, 2, 16)  # numbers of microbatches


def test_a_straggler_is_waiting_whatever_its_size_and_no_part_of_the_links_speed(tmp_path: Path) -> None:
    """5, 20 and 80 ms: the waiting to 5 % of it, and the transfer to 15 %, by what the ranks say. On a busy
    machine the other rank is late at times, too, and waits for less than was planted.
    """
    for each in stragglers(tmp_path / "run"):
        assert each.transfer_error < 0.15, each
        if each.planted_ms:
            assert median(each.truth_ns) > each.planted_ms * MS / 2
            assert each.error < 0.05, each
            assert median(each.last_ns) == 0


@pytest.mark.parametrize(
    ("times_ms", "microbatches"),
    [
        pytest.param([(10, 20), (10, 20)], SOME, marks=pytest.mark.long),
        ([(10, 20), (20, 40)], SOME),
        pytest.param([(20, 20), (10, 30)], SOME, marks=pytest.mark.long),
        pytest.param([(8, 16)] * 4, ALL, marks=pytest.mark.long),
    ],
    ids=["2-alike", "2-last-slow", "2-first-slow-forward", "4-alike"],
)
def test_the_bubble_is_what_the_stages_delays_make_it(
    tmp_path: Path, times_ms: list[tuple[int, int]], microbatches: tuple[int, ...]
) -> None:
    """To 10 % for 1 to 16 microbatches, by what the ranks say. By what was planted, and by the textbook where
    all stages are alike, on the first stage for 1 and 2 microbatches: in longer steps a busy machine makes
    bubbles of its own, and the other stages also wait for the end of the step, which is no message.
    `make bench NAME=profile_truth` shows all of it.
    """
    for each in pipelines(tmp_path / "run", times_ms, microbatches):
        assert each.error < 0.10, each
        if each.stage == 0 and each.microbatches <= 2:
            assert each.planted_error < 0.10, each
            if len(set(times_ms)) == 1:
                assert each.ideal == (each.stages - 1) / (each.microbatches + each.stages - 1)
                assert each.share == pytest.approx(each.ideal, rel=0.10), each


def test_the_truth_is_the_textbooks_where_stages_take_equally_long() -> None:
    """Forward 1, backward 2. Stage 0 waits for 1 + 2 of each stage behind it; the last one for the first
    forward passes.
    """
    assert truth([[1, 1, 2, 1, 2, 1, 2, 2], [1, 2] * 4], 4) == [3, 1]
    first, second, third = [1, 1, 1, 2, 1, 2, 2, 2], [1, 1, 2, 1, 2, 1, 2, 2], [1, 2] * 4
    assert truth([first, second, third], 4)[0] == 6
    assert truth([first, second, third], 4)[2] == 2


def test_collectives_inside_of_autograd_functions_are_communication(tmp_path: Path) -> None:
    """In the step's parts and as exposed time, to 10 % of what the calls took by the callers' own clocks."""
    for rank, each in enumerate(two_ranks("tests.function_waits", tmp_path)):
        assert len(each["took_ns"]) == len(each["exposed_ns"]) == 2
        took_ns = sum(each["took_ns"])
        if rank == 0:  # which waits for the other one
            assert took_ns > 2 * LATE_S * 0.9e9
            assert each["communication_ns"] == pytest.approx(took_ns, rel=0.1)
            assert sum(each["exposed_ns"]) == pytest.approx(took_ns, rel=0.1)
