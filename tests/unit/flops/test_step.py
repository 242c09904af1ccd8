"""What a step has of each unit, by hand."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.step import Measure, Step
from flagscale_perf.flops.tape import Tape
from flagscale_perf.flops.units import EXPERT_ROW, TOKEN, Pair
from flagscale_perf.flops_calculator import ModelShape
from flagscale_perf.spine.errors import PerfError

PAIR = Pair()


def test_rows_of_experts() -> None:
    sizes = {
        "num_layers": 1,
        "hidden_size": 4,
        "num_attention_heads": 2,
        "ffn_hidden_size": 8,
        "padded_vocab_size": 16,
    }
    mixture = sizes | {"num_experts": 4, "moe_router_topk": 2, "micro_batch_size": 2}
    capacity = mixture | {"moe_pad_expert_input_to_capacity": True, "moe_expert_capacity_factor": 1.3}
    step = Step(4, 5)
    assert Measure(ModelShape.from_args(sizes), step, "full", padded=True).expert_rows() == 0
    assert Measure(ModelShape.from_args(mixture), step, "full", padded=True).expert_rows() == 20 * 2
    assert Measure(ModelShape.from_args(capacity), step, "full", padded=False).expert_rows() == 20 * 2
    # 10 tokens of a micro-batch: ceil(10 x 2 / 4 x 1.3) = 7 places at each of 4 experts, 2 micro-batches
    assert Measure(ModelShape.from_args(capacity), step, "full", padded=True).expert_rows() == 2 * 4 * 7
    # half as many where 2 ranks share a sequence: ceil(5 x 2 / 4 x 1.3) = 4
    shared = ModelShape.from_args(capacity | {"context_parallel_size": 2})
    assert Measure(shared, step, "full", padded=True).expert_rows() == 4 * 4 * 4


def test_flops_are_costs_per_unit_times_units() -> None:
    args = {"num_layers": 1, "hidden_size": 4, "num_attention_heads": 2, "padded_vocab_size": 16}
    shape = ModelShape.from_args(args | {"num_experts": 4, "moe_router_topk": 2})
    tape = Tape(shape)
    tape.add("mlp", TOKEN, fwd=10, bwd=20)
    tape.add("core_attention", PAIR, fwd=6, bwd=12)
    tape.add("experts", EXPERT_ROW, fwd=3, bwd=6)
    measure = Measure(tape.shape, Step(2, 8), "causal_half", padded=False)
    costs = [term.in_step(measure, per_unit) for term, per_unit in tape.flops.items() if term.phase == "fwd"]
    assert costs == [160, 384, 96]
    assert tape.total(measure, "fwd") == 160 + 384 + 96
    assert tape.total(measure, "fwd", "bwd", "recompute") == 3 * (160 + 384 + 96)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ((0, 8), "a step cannot have 0 sequences of 8 tokens; both must be above 0"),
        ((1, 0), "a step cannot have 1 sequences of 0 tokens; both must be above 0"),
        *(
            (
                (1, 8, lengths),
                "packed lengths must be above 0 and sum up to at most 1 x 8 = 8 tokens; they are"
                f" {len(lengths)} lengths of {tokens} tokens",
            )
            for lengths, tokens in (((4, 5), 9), ((4, 0), 4), ((), 0))
        ),
    ],
)
def test_impossible_sizes_are_refused(sizes, says) -> None:
    with pytest.raises(PerfError) as refused:
        Step(*sizes)
    assert str(refused.value) == says
