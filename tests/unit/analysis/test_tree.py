"""Parts that add up, and what lies in steps, against sums by hand."""

from __future__ import annotations

import random

import pytest

from flagscale_perf.analysis.tree import Laid, Node, grafted, laid_in, moved, noted

S = 1_000_000_000


def adds_up(node: Node) -> bool:
    known = [one.dur_s for one in node.parts if one.dur_s is not None]
    is_whole = not known or node.dur_s is None or sum(known) == pytest.approx(node.dur_s)
    return is_whole and all(map(adds_up, [*node.parts, *node.beside]))


def test_what_parts_leave_is_a_part_too() -> None:
    tree = Node("wall", 10.0, [Node("a", 6.0, [Node("b", 1.0)]), Node("c", 1.0), Node("d", None)]).closed()
    assert [(one.name, one.dur_s) for one in tree.parts] == [
        ("a", 6.0),
        ("c", 1.0),
        ("other", 3.0),
        ("d", None),
    ]
    assert [(one.name, one.dur_s) for one in tree.parts[0].parts] == [("b", 1.0), ("other", 5.0)]
    assert adds_up(tree)
    over = Node("wall", 1.0, [Node("a", 1.25)]).closed()
    assert over.parts[1].dur_s == -0.25  # said, and not hidden


def test_of_many_parts_the_longest_are_kept_in_their_order() -> None:
    tree = Node("wall", 100.0, [Node(str(n), float(n)) for n in range(1, 8)], most=3).closed()
    assert [(one.name, one.dur_s, one.note) for one in tree.parts] == [
        *((str(n), float(n), "") for n in (5, 6, 7)),
        ("other", 82.0, "4 more"),
    ]


def branch(rank: int, forward_s: float) -> Node:
    parts = [Node("forward", forward_s, [Node("layer 0", forward_s / 2)], key="forward")]
    return Node(f"in 12 steps, rank {rank}", 2.0, parts, ranks=[rank])


def test_what_another_instrument_knows_lies_below_as_long_as_it_was_recorded() -> None:
    late = Node("rank 0, forward", 1.0, key="forward", ranks=[0])
    tree = Node("wall", 10.0, [Node("productive", 8.0, [Node("forward", 5.0, key="forward")]), late])
    joined = grafted(tree, Node("profile", None, [branch(0, 0.9), branch(1, 0.5)])).closed()
    (forward, _), (rank, _) = joined.parts[0].parts, (joined.parts[1], None)
    # of rank 1, as rank 0 is late; not multiplied
    assert [(one.name, one.dur_s) for one in forward.parts] == [
        ("in 12 steps, rank 1", 0.5),
        ("in other steps, not taken apart", 4.5),
    ]
    assert forward.parts[0].is_sample and forward.parts[0].parts[0].name == "layer 0"
    assert rank.parts == []
    assert adds_up(joined)
    assert grafted(tree, Node("profile", None, [branch(0, 0.9)])) == tree  # the late rank is not a usual one
    assert noted(tree, "forward", [0], "in layer 1").parts[1].note == "in layer 1"


def test_calls_lie_in_the_steps_in_which_they_begin_and_time_counts_once() -> None:
    steps = [(0, 10 * S), (20 * S, 30 * S)]
    calls = [
        Laid("score", 1 * S, 3 * S),
        Laid("score", 2 * S, 4 * S),  # at the same time
        Laid("score", 9 * S, 21 * S),  # over the pause
        Laid("score", 12 * S, 13 * S),  # in the pause
        Laid("stop", 40 * S, 41 * S),
    ]
    score, stop = laid_in(steps, calls, "rpc")
    assert (score.name, score.dur_s) == ("rpc: score", 5.0)
    assert score.note == "3 begin in 1 of 2 steps, 1 outside of all"
    assert (stop.dur_s, stop.note) == (0.0, "0 begin in 0 of 2 steps, 1 outside of all")
    others = laid_in(steps, moved(calls, lambda ns: ns - 20 * S), "rpc")
    assert [one.note for one in others if one.name == "rpc: stop"] == [
        "1 begin in 1 of 2 steps, 0 outside of all"
    ]
    assert laid_in([], calls[:1], "rpc") == [Node("rpc: score", None, note="1, none of them in a step")]


def test_time_in_steps_against_each_millisecond_counted() -> None:
    chance = random.Random(3)
    edges = sorted(chance.sample(range(2000), 40))
    steps = list(zip(edges[::2], edges[1::2], strict=True))
    calls = [(at, at + chance.randrange(1, 60)) for at in (chance.randrange(-50, 2050) for _ in range(300))]
    busy = {ms for begin, end in calls for ms in range(begin, end)}
    inside = {ms for begin, end in steps for ms in range(begin, end)}
    (node,) = laid_in(steps, [Laid("x", *call) for call in calls], "rpc")
    assert node.dur_s == pytest.approx(len(busy & inside) / S)
    begun = sum(at in inside for at, _ in calls)
    assert node.note.startswith(f"{begun} begin in ") and node.note.endswith(
        f", {300 - begun} outside of all"
    )
