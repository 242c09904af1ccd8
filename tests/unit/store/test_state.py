"""The state of an object as text and back: the same values, shared as they were, and nothing else is done."""

from __future__ import annotations

import json
import math
import random
from collections import Counter, defaultdict, deque
from typing import Any

import pytest

from flagscale_perf.spine.clock import Anchor
from flagscale_perf.store import state
from flagscale_perf.training.phases import Kind
from flagscale_perf.training.samples import Reservoir, ThinnedRows
from tests.fakes import make_facts, make_header, make_step

VALUES: list[Any] = [
    [1, -(10**30), 1.5, math.inf, None, True, "ü\ud800", [], ()],
    {"a": {1: (2, frozenset({3}))}, (4, 5): {6}, None: deque([7, 8], maxlen=9)},
    Counter({"x": 3}),
    defaultdict(int, {2: 4}),
    range(3, 9, 2),
    [make_step(3), make_header(facts=make_facts()), Anchor(1, 2), Kind.__mro__[0], *Kind],
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_is_kept_comes_back(value: Any) -> None:
    made = state.made(state.text_of(value))
    assert (made, type(made)) == (value, type(value))
    assert getattr(made, "maxlen", None) == getattr(value, "maxlen", None)


def test_a_generator_of_chance_goes_on() -> None:
    chance, one, other = random.Random(3), Reservoir(8), Reservoir(8)
    values = [chance.randrange(1000) for _ in range(99)]
    for value in values[:50]:
        one.add(value)
    state.made(state.text_of(one), other)
    for value in values[50:]:
        one.add(value)
        other.add(value)
    assert vars(one)["_kept"] == vars(other)["_kept"]


def test_what_is_one_stays_one_and_functions_are_the_new_objects_own() -> None:
    rows, new = (ThinnedRows[tuple[int, int]](4, lambda row: row[1]) for _ in range(2))
    for number in range(11):
        rows.add((number, -number))
    state.made(state.text_of(rows), new)
    assert new.rows() == rows.rows()
    new.add((11, 5))
    rows.add((11, 5))
    assert new.rows() == rows.rows()
    shared = [1]
    first, second = state.made(state.text_of([shared, shared]))
    assert first is second


def test_what_refers_to_a_part_of_the_new_object_still_does() -> None:
    class Holder:  # of no module of ours: only its list is kept
        pass

    root = [[1], {}]
    new: list[Any] = [[], {}]
    add = new[0].append
    state.made(state.text_of(root), new)
    add(2)
    assert new[0] == [1, 2]
    with pytest.raises(TypeError, match="cannot be kept"):
        state.text_of(Holder())


def test_neither_too_much_nor_an_open_file_is_kept() -> None:
    with pytest.raises(TypeError, match="too much"):
        state.text_of([*range(100)], 99)
    with pytest.raises(TypeError, match="cannot be kept"):
        state.text_of([iter([])])


@pytest.mark.parametrize(
    ("classes", "node"),
    [
        (["os:system"], ["object", 0, [], []]),
        (["subprocess:Popen"], ["object", 0, [], []]),
        (["flagscale_perf.spine.files:os"], ["object", 0, [], []]),
        (["flagscale_perf.not.there:Thing"], ["object", 0, [], []]),
        (["flagscale_perf.spine.clock:Anchor"], ["object", 0, ["__class__"], [1]]),
        (["flagscale_perf.training.records:StepRecord"], ["record", 0, [1]]),
        (["flagscale_perf.training.samples:Reservoir"], ["enum", 0, 1]),
        ([], ["own"]),
        ([], ["same", 3]),
        ([], ["value", []]),
        ([], [3]),
        ([], ["range", ["x"]]),
        ([], ["mapping", "Thing", "", [], []]),
        ([], ["mapping", "defaultdict", "eval", [], []]),
    ],
)
def test_a_text_that_asks_for_anything_else_is_refused(classes: list[str], node: list[Any]) -> None:
    with pytest.raises((TypeError, ValueError, LookupError, AttributeError)):
        state.made(json.dumps([classes, node]))
