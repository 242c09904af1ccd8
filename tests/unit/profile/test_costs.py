"""FLOPs and bytes of operators, from their shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from flagscale_perf.flops_calculator import ModelShape, step_flops
from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.costs import _WHOLE, _WRITES_ONLY, FORMULAS, FREE, Cost, costs_of, formula_of
from flagscale_perf.profile.kineto import Range, Session
from flagscale_perf.profile.ranges import STEP, Ranges
from flagscale_perf.profile.records import Sort
from flagscale_perf.profile.rows import Key
from tests.profiled_events import tiny_qwen3, tiny_qwen3_moe

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
    return costs_of(events, Attribution(events))


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


def products(found: dict[Key, Cost]) -> dict[str, int]:
    """FLOPs by operator, attention aside."""
    made: dict[str, int] = {}
    for key, cost in found.items():
        if cost.flops and "attention" not in key.op:
            made[key.op] = made.get(key.op, 0) + cost.flops
    return made


@pytest.mark.parametrize("experts", ["grouped_mm", "batched_mm", "eager"])
def test_experts_are_counted_however_they_are_multiplied(experts: str) -> None:
    model, tokens = tiny_qwen3_moe(), torch.arange(TOKENS).reshape(1, TOKENS)
    model.set_experts_implementation(experts)

    def run() -> None:
        model(input_ids=tokens, labels=tokens).loss.backward()

    run()
    found = costs(run, model)
    model.set_experts_implementation("eager")
    with FlopCounterMode(display=False) as counter:
        run()
    theirs = counter.get_flop_counts()["Global"]
    # 2 layers, forward and twice backward: 32 rows by a matrix of 32 x 32, and of 16 x 32
    assert 2 * 3 * (2 * 32 * 32 * 32 + 2 * 32 * 16 * 32) == 589_824
    assert sum(products(found).values()) == theirs[torch.ops.aten.mm] == 811_008 + 589_824
    own = sum(
        cost.flops or 0 for key, cost in found.items() if key.module.endswith("experts") and "mm" in key.op
    )
    assert own == 589_824


ROWS, INPUTS, OUTPUTS = 6, 8, 4
ONE, OTHER = torch.ones(ROWS, INPUTS), torch.ones(INPUTS, OUTPUTS)
EACH = torch.ones(3, INPUTS, OUTPUTS)
ENDS = torch.tensor([2, 5, 6], dtype=torch.int32)
PRODUCT = 2 * ROWS * INPUTS * OUTPUTS


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda: ONE.new_zeros(ROWS, OUTPUTS).addmm_(ONE, OTHER), {"aten::addmm_": PRODUCT}),
        # as Inductor calls it
        (lambda: torch.addmm(OTHER[0], ONE, OTHER, out=torch.empty(6, 4)), {"aten::addmm": PRODUCT}),
        (lambda: torch._grouped_mm(ONE, EACH, ENDS), {"aten::mm": PRODUCT}),
        (lambda: torch.addbmm(torch.ones(2, 4), torch.ones(3, 2, 8), EACH), {"aten::addmm_": PRODUCT}),
        (lambda: torch.baddbmm(torch.ones(3, 2, 4), torch.ones(3, 2, 8), EACH), {"aten::baddbmm": PRODUCT}),
        (lambda: torch._int_mm(ONE.to(torch.int8), OTHER.to(torch.int8)), {"aten::_int_mm": PRODUCT}),
        (lambda: torch._addmm_activation(OTHER[0], ONE, OTHER), {"aten::_addmm_activation": PRODUCT}),
        (lambda: torch.einsum("bij,bjk->bik", torch.ones(3, 2, 8), EACH), {"aten::bmm": PRODUCT}),
        (lambda: ONE @ OTHER[:, 0], {"aten::addmv_": 2 * ROWS * INPUTS}),
        (lambda: torch.dot(ONE[0], OTHER[:, 0]), {"aten::dot": 2 * INPUTS}),
    ],
)
def test_a_product_is_counted_where_its_time_is(run: Any, expected: dict[str, int]) -> None:
    assert products(costs(run)) == expected


@pytest.mark.parametrize(
    ("name", "shapes", "flops"),
    [
        ("aten::_grouped_mm", ([6, 8], [3, 8, 4], [3]), PRODUCT),  # rows split among the groups
        ("aten::_grouped_mm", ([8, 6], [6, 4], [3]), PRODUCT),  # the inner size: gradients of weights
        ("aten::_grouped_mm", ([3, 2, 8], [3, 8, 4]), PRODUCT),
        ("aten::_grouped_mm", ([3, 6, 8], [8, 4], [3]), PRODUCT),  # columns
        ("aten::_scaled_grouped_mm", ([6, 8], [3, 8, 4], [6], [3, 4], [3]), PRODUCT),
        ("aten::_scaled_mm_v2", ([6, 8], [8, 4], [], [1], [0], [], [1], [0], [], []), PRODUCT),
        ("aten::_weight_int8pack_mm", ([6, 8], [4, 8], [4]), PRODUCT),
        ("aten::_weight_int4pack_mm_for_cpu", ([6, 8], [4, 4], 32, [4]), PRODUCT),
        ("aten::_dyn_quant_matmul_4bit", ([6, 8], [40], 32, 8, 4), PRODUCT),
        ("mkldnn::_linear_pointwise", ([6, 8], [4, 8], [4], "none", [], ""), PRODUCT),
        ("mkl::_mkl_linear", ([6, 8], [1], [4, 8], [4], 6), PRODUCT),
        ("aten::cudnn_convolution", ([1, 3, 8, 8], [4, 3, 3, 3], [1, 1], [2, 2], [1, 1], 1), 64 * 54),
        (
            "aten::slow_conv3d_forward",
            ([1, 3, 2, 8, 8], [4, 3, 2, 8, 8], [], [], [2, 8, 8], [0] * 3),
            4 * 768,
        ),
    ],
)
def test_products_of_devices_and_compilers(name: str, shapes: tuple[Any, ...], flops: int) -> None:
    formula = formula_of(name)
    assert formula is not None
    assert formula(*shapes) == flops


def test_convolutions_are_those_that_torch_counts() -> None:
    images, line = torch.ones(2, 3, 8, 8, requires_grad=True), torch.ones(2, 4, 9)
    kernel, back = torch.ones(4, 3, 3, 3, requires_grad=True), torch.ones(3, 4, 3, 3, requires_grad=True)
    deep = torch.ones(4, 1, 3, requires_grad=True)
    patches = torch.ones(16, 3, 2, 4, 4)
    functional = torch.nn.functional

    def run() -> None:
        functional.conv2d(images, kernel, padding=1, stride=2).sum().backward()
        functional.conv_transpose2d(images, back, stride=2).sum().backward()
        functional.conv1d(line, deep, groups=4, padding=2, dilation=2).sum().backward()
        functional.conv3d(torch.ones(1, 3, 2, 8, 8), patches, stride=(2, 4, 4))

    with FlopCounterMode(display=False) as counter:
        run()
    theirs = counter.get_flop_counts()["Global"]
    found = products(costs(run))
    backward = found.pop("aten::convolution_backward")
    assert backward == theirs[torch.ops.aten.convolution_backward]
    assert sum(found.values()) == theirs[torch.ops.aten.convolution]


def test_every_operator_that_torch_counts_is_counted() -> None:
    packets = [packet for packet in flop_registry if str(packet).startswith("aten.")]
    assert [str(each) for each in packets if formula_of(str(each).replace(".", "::")) is None] == []
    assert len(packets) > 20


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
