"""FLOPs and bytes of operators, from their shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from flagscale_perf.flops_calculator import ModelShape, step_flops
from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.costs import _WHOLE, _WRITES_ONLY, FORMULAS, FREE, Cost, costs_of
from flagscale_perf.profile.kineto import Range, Session
from flagscale_perf.profile.ranges import STEP, Ranges
from flagscale_perf.profile.records import Sort
from flagscale_perf.profile.rows import Key
from tests.profiled_events import tiny_qwen3

LAYERS, HIDDEN, TOKENS, VOCABULARY, INNER, KEYS, HEADS, HEAD = 2, 32, 16, 64, 64, 16, 4, 8


def costs(run: Any, model: Any = None) -> dict[Key, Cost]:
    """Of one step in which `run` is called."""
    ranges = Ranges(model or [])
    session = Session(shapes=True, memory=True)
    ranges.attach()
    session.start()
    with Range(STEP):
        run()
    session.stop()
    ranges.detach()
    events = session.events(100_000)
    return costs_of(events, Attribution.of(events))


def test_a_product_reads_two_matrices_and_writes_one() -> None:
    one, two = torch.ones(3, 4), torch.ones(4, 5, dtype=torch.float32)
    found = costs(lambda: torch.mm(one, two))
    assert found == {
        Key("other", "", int(Sort.OPERATOR), "aten::mm"): Cost(0, 2 * 3 * 4 * 5, 4 * (12 + 20 + 15))
    }


def test_what_is_done_in_place_is_read_and_written_and_a_view_costs_nothing() -> None:
    one, two = torch.ones(6), torch.ones(6)

    def run() -> None:
        one.view(2, 3)
        one.add_(two)
        one.zero_()

    found = costs(run)
    assert {key.op: cost.moved_bytes for key, cost in found.items()} == {"aten::add_": 72, "aten::zero_": 24}


def test_the_names_are_operators_of_torch() -> None:
    for name in FREE | _WHOLE | _WRITES_ONLY:
        assert hasattr(torch.ops.aten, name.removeprefix("aten::")), name


def test_an_operator_that_calls_another_one_is_not_counted_twice() -> None:
    layer, value = torch.nn.Linear(4, 5), torch.ones(3, 4)
    with torch.no_grad():
        found = costs(lambda: layer(value), layer)
    assert {(key.module, key.op): cost.flops for key, cost in found.items() if cost.flops} == {
        ("Linear", "aten::addmm"): 2 * 3 * 4 * 5
    }


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_qwen3(LAYERS)


def test_products_are_those_that_torch_counts(model: Any) -> None:
    tokens = torch.arange(TOKENS).reshape(1, TOKENS)

    def run() -> None:
        model(input_ids=tokens, labels=tokens).loss.backward()

    run()
    with FlopCounterMode(display=False) as counter:
        run()
    found = costs(run, model)
    theirs = {str(op).replace(".", "::"): flops for op, flops in counter.get_flop_counts()["Global"].items()}
    ours = {op: sum(cost.flops or 0 for key, cost in found.items() if key.op == op) for op in theirs}
    assert ours == theirs  # which has the attention of a CPU in it since torch 2.15
    assert ours["aten::mm"] > 0


def test_the_forward_pass_is_that_of_the_flops_calculator(model: Any) -> None:
    tokens = torch.arange(TOKENS).reshape(1, TOKENS)
    with torch.no_grad():
        model(input_ids=tokens)
        found = costs(lambda: model(input_ids=tokens), model)
    shape = ModelShape(
        layers=LAYERS,
        hidden=HIDDEN,
        heads=HEADS,
        kv_groups=KEYS // HEAD,
        head_dim=HEAD,
        ffn=INNER,
        gated=True,
        vocab=VOCABULARY,
    )
    attention = sum(cost.flops or 0 for key, cost in found.items() if "attention" in key.op)
    everything = sum(cost.flops or 0 for cost in found.values())
    assert attention == LAYERS * 2 * 2 * TOKENS * TOKENS * HEADS * HEAD
    # the calculator counts the half of attention that a causal mask leaves; backward is twice forward
    assert step_flops(shape, 1, TOKENS).model_flops == 3 * (everything - attention // 2)


@pytest.mark.parametrize(
    ("name", "arguments", "flops", "hidden"),
    [
        # 3 tokens of 5 numbers to 4: three times four sums of five products; the weight is behind a number
        ("_C::onednn_mm", ([3, 4], [3, 5], [], []), 2 * 3 * 4 * 5, 4 * 5),
        # the weight, packed, is an argument
        ("_C::weight_packed_linear", ([3, 4], [3, 5], [4, 5], [], []), 2 * 3 * 4 * 5, None),
        # one pair of a query and a key, in 4 heads of 8 numbers, with 2 heads of keys and values
        (
            "vllm::unified_attention_with_output",
            ([3, 4, 8], [3, 2, 8], [3, 2, 8], [3, 4, 8], "layer"),
            4 * (2 * 8 + 2 * 8),
            None,
        ),
    ],
)
def test_formula(name: str, arguments: tuple[list[int], ...], flops: int, hidden: int | None) -> None:
    formula = FORMULAS[name]
    assert formula.flops(*arguments) == flops
    assert (None if formula.hidden is None else formula.hidden(*arguments)) == hidden
