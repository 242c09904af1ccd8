"""Parts that add up, and what another instrument knows of them."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.tree import Node, grafted, noted


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
