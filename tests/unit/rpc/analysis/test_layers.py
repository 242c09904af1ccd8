"""What the sequence of calls shows of the model."""

from __future__ import annotations

import pytest

from flagscale_perf.rpc.analysis.columns import columns_of
from flagscale_perf.rpc.analysis.layers import Attention, cycles, find_layer
from flagscale_perf.rpc.traffic import Pass, Stage
from tests.rpc_sessions import LLAMA_1B, SMALL, llama_calls, make_call


def test_a_layer_is_six_calls_that_come_again() -> None:
    period, begins = cycles(llama_calls(LLAMA_1B))
    assert (period, begins) == (6, list(range(1, 97, 6)))


@pytest.mark.parametrize(
    ("stage", "calls"), [(Stage.CALLS4, 4), (Stage.FUSED_ATTENTION, 5), (Stage.FUSED_LAYER, 1)]
)
def test_so_it_is_with_fused_ones(stage, calls) -> None:
    layer = find_layer(llama_calls(SMALL, Pass(stage)), starts_known=True)
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
    layer = find_layer(llama_calls(SMALL), starts_known=False)
    assert layer is not None
    ends = [step.start_ns + step.call.total_ns for step in layer.steps]
    assert [step.start_ns for step in layer.steps[1:]] == ends[:-1]


def attention_of(calls, size: int = 1000) -> Attention:
    found = Attention()
    for place in range(0, len(calls), size):
        found.add(columns_of(calls[place : place + size]))
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_attentions_products_are_known_by_their_bytes(size) -> None:
    found = attention_of(llama_calls(LLAMA_1B), size)
    assert (found.pairs, found.repeats) == (16, 4)
    assert found.scores_bytes == 16 * 4 * 32 * 1024 * 1024  # layers, float32, heads, tokens squared
    assert found.keys_bytes == 16 * 4 * 1024 * 32 * 64  # repeated to 32 heads of 64


def test_keys_that_are_not_repeated_are_sent_once() -> None:
    assert attention_of(llama_calls(LLAMA_1B, Pass(repeat_kv=False))).repeats == 1


def test_a_fused_layer_has_none() -> None:
    found = attention_of(llama_calls(LLAMA_1B, Pass(Stage.FUSED_ATTENTION)))
    assert (found.pairs, found.repeats) == (0, None)
