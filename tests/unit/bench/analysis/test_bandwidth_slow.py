"""Slow ranks and links are named, and healthy ones are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.bench.analysis.bandwidth import slow_parts
from flagscale_perf.bench.analysis.source import Part, read_bench
from tests.bench_runs import book_in, local, message

STEADY = (0.98, 1.0, 1.02)


def run_of(
    directory: Path, ranks: int, slower: dict[tuple[int, int], float], copies: dict[int, float]
) -> Part:
    """Messages between all ranks; `slower` is by how much the time of a pair, in either order, is longer."""
    with book_in(directory) as book, book.part("bandwidth", None, {}) as part:
        for rank in range(ranks):
            for op in ("copy", "triad"):
                local(part, op, rank, [copies.get(rank, 1.0) * each for each in STEADY])
        for source in range(ranks):
            for target in set(range(ranks)) - {source}:
                times = slower.get((source, target), 1.0)
                message(part, (source, target), [times * each for each in STEADY])
                message(part, (source, target), [9.0], size=1)  # small ones say nothing of a link
    return read_bench(open_session(book.path)).parts["bandwidth"]


def test_healthy_ranks_and_links_are_not_named(tmp_path: Path) -> None:
    assert slow_parts(run_of(tmp_path, 4, {(1, 3): 1.4, (2, 0): 0.7}, {2: 1.3})) == []


def test_a_slow_link_is_named_by_both_ends(tmp_path: Path) -> None:
    (found,) = slow_parts(run_of(tmp_path, 4, {(3, 1): 5.0}, {}))
    assert found.ranks == (1, 3)
    assert found.text == ("the link between rank 1 and rank 3 takes 5.0 times as long as other links of both")


def test_a_rank_all_of_whose_links_are_slow_is_named_alone(tmp_path: Path) -> None:
    (found,) = slow_parts(run_of(tmp_path, 3, {(0, 1): 4.0, (1, 2): 4.0}, {}))
    assert found.ranks == (1,)
    assert found.text.startswith(
        "rank 1 is slow: its fastest link takes 4.0 times as long as the fastest one"
    )


def test_a_link_far_slower_than_the_other_ones_of_its_slow_rank_comes_first(tmp_path: Path) -> None:
    link, rank = slow_parts(run_of(tmp_path, 3, {(0, 2): 90.0, (0, 1): 6.0}, {}))
    assert link.text == "the link between rank 0 and rank 2 takes 15.0 times as long as other links of both"
    assert rank.text.startswith("rank 0 is slow: its fastest link takes 6.0 times as long")


def test_of_two_ranks_the_slow_one_is_told_by_its_memory(tmp_path: Path) -> None:
    (found,) = slow_parts(run_of(tmp_path, 2, {(0, 1): 7.0}, {1: 2.0}))
    assert (found.ranks, found.times) == ((1,), pytest.approx(2.0))
    assert found.text.startswith("rank 1 is slow: a copy in its own memory takes 2.0 times")


def test_many_slow_links_are_links_of_different_kinds(tmp_path: Path) -> None:
    """Two pairs of near ranks, everything else far."""
    far = {(one, other): 3.0 for one in (0, 1) for other in (2, 3)}
    (found,) = slow_parts(run_of(tmp_path, 4, far, {}))
    assert found.is_topology
    assert found.text.startswith(
        "links are of different kinds: 4 of 6 take more than 1.5 times as long as other"
    )


def test_among_links_of_different_kinds_a_single_slow_one_is_named(tmp_path: Path) -> None:
    far = {(one, other): 3.0 for one in (0, 1) for other in (2, 3)} | {(1, 2): 30.0}
    link, kinds = sorted(slow_parts(run_of(tmp_path, 4, far, {})), key=lambda one: one.is_topology)
    assert link.text.startswith("the link between rank 1 and rank 2 takes")
    assert kinds.is_topology


def test_one_slow_turn_of_a_rank_is_not_the_rank(tmp_path: Path) -> None:
    with book_in(tmp_path) as book, book.part("bandwidth", None, {}) as part:
        for rank in range(2):
            local(part, "copy", rank, [1.0 + rank])
            local(part, "triad", rank, [1.0])
    assert slow_parts(read_bench(open_session(book.path)).parts["bandwidth"]) == []
