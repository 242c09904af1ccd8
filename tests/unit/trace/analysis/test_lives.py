"""A put begins a new life of a sample or goes on with the one it has, as clears, functions and gets tell."""

from __future__ import annotations

import pytest

from flagscale_perf.trace.analysis.lives import Nodes, cleared_exactly, in_turn
from flagscale_perf.trace.analysis.transfers import Clear, Transfers, What
from tests.trace_runs import MS, make_get, make_operation

PROMPT, BOTH, NOTE = (frozenset(names) for names in (["prompt"], ["prompt", "response"], ["note"]))


def _transfers(*fields: frozenset[str] | None) -> Transfers:
    kept = Transfers()
    for number, names in enumerate(fields):
        kept.add(make_operation(start_ns=number * MS), "P", What("train", None, names))
    return kept


@pytest.mark.parametrize(
    ("got", "writers"),
    [
        (PROMPT, [0]),  # the note came later, and nobody asked for it
        (NOTE, [2]),
        (BOTH, [1, 0]),
        (None, [2, 1, 0]),
        (frozenset({"score"}), []),
    ],
)
def test_a_field_is_of_the_last_put_that_wrote_it(got: frozenset[str] | None, writers: list[int]) -> None:
    nodes, node = Nodes(_transfers(PROMPT, frozenset({"response"}), NOTE).transfers, "abc"), 0
    for put in range(3):
        node = nodes.after_put(node, put)
    assert nodes.writers(node, got) == writers


@pytest.mark.parametrize(
    ("functions", "is_over", "fields", "begins"),
    [
        ("aa", False, PROMPT, True),
        ("aa", False, None, True),
        ("aa", False, NOTE, False),
        ("ab", False, PROMPT, False),
        ("ab", True, BOTH, True),
        ("ab", True, NOTE, False),
    ],
)
def test_a_life_begins_with_what_the_last_one_began_with(
    functions: str, is_over: bool, fields: frozenset[str] | None, begins: bool
) -> None:
    nodes = Nodes(_transfers(PROMPT, fields).transfers, functions)
    node = nodes.after_put(0, 0)
    assert nodes.begins(nodes.after_last_get(node) if is_over else node, 1) is begins


def test_moves_and_clears_come_in_the_order_of_their_times() -> None:
    kept = _transfers(PROMPT)
    kept.add(make_get(start_ns=0), "C", What("train"))
    kept.clears += [Clear(9 * MS, "train", None, True), Clear(MS, "other", None, False)]
    assert list(in_turn(kept)) == [1, kept.clears[1], 0, kept.clears[0]]
    assert cleared_exactly(kept) == {"train"}
