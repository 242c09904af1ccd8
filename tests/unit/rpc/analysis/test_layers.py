"""The pattern of calls that is repeated."""

from __future__ import annotations

import pytest

from flagscale_perf.rpc.analysis.layers import cycles, find_layer
from tests.rpc_sessions import SMALL, Moved, fused, llama_calls, make_call, split


def test_a_layer_is_six_calls_that_come_again() -> None:
    period, begins = cycles(llama_calls())
    assert (period, begins) == (6, list(range(1, 97, 6)))


@pytest.mark.parametrize(("moved", "calls"), [(split(SMALL), 6), (fused(SMALL), 1)])
def test_it_is_as_long_as_what_is_repeated(moved: Moved, calls: int) -> None:
    layer = find_layer(llama_calls(moved), starts_known=True)
    assert layer is not None
    assert (len(layer.steps), layer.repeats) == (calls, 4)


def test_where_nothing_is_repeated_there_is_none() -> None:
    assert find_layer([make_call(n, sent_bytes=n) for n in range(1, 50)], starts_known=True) is None
    assert find_layer([], starts_known=True) is None


def test_the_one_shown_is_in_the_middle_and_keeps_its_starts() -> None:
    calls = [make_call(number, total_ns=number) for number in (1, 9, 2, 8, 3)]
    layer = find_layer(calls, starts_known=True)
    assert layer is not None
    assert (layer.steps[0].call.total_ns, layer.repeats, layer.total_ns) == (3, 5, 3)


def test_without_starts_calls_are_laid_end_to_end() -> None:
    layer = find_layer(llama_calls(split(SMALL)), starts_known=False)
    assert layer is not None
    ends = [step.start_ns + step.call.total_ns for step in layer.steps]
    assert [step.start_ns for step in layer.steps[1:]] == ends[:-1]
