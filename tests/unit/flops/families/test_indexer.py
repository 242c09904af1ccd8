"""Sparse attention, by hand: h 4, 2 index heads of width 3, 2 keys a query sees."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.families.indexer import SparsePair, sparse_attention
from flagscale_perf.flops.step import Measure, Step
from flagscale_perf.flops.units import TOKEN, Pair
from flagscale_perf.flops_calculator import Packed, step_flops
from flagscale_perf.spine.errors import PerfError
from tests.unit.flops.families.walks import forward, tape_of

SPARSE = {
    "multi_latent_attention": True,
    "q_lora_rank": 5,
    "kv_lora_rank": 3,
    "qk_head_dim": 2,
    "qk_pos_emb_head_dim": 2,
    "v_head_dim": 2,
    "experimental_attention_variant": "dsa",
    "dsa_indexer_n_heads": 2,
    "dsa_indexer_head_dim": 3,
    "dsa_indexer_topk": 2,
}
INDEXER = {
    ("indexer.wq_b", TOKEN): 2 * 5 * 6,
    ("indexer.wk", TOKEN): 2 * 4 * 3,
    ("indexer.weights_proj", TOKEN): 2 * 4 * 2,
    ("indexer.scores", Pair()): 2 * 6 + 2 * 2,
}


def test_layers_may_take_the_keys_that_one_before_chose() -> None:
    # what Megatron-LM main's is_dsa_skip_topk_layer says of layers 1 to 9, an offset of 3, every 2nd
    shared = tape_of(**SPARSE, num_layers=9, dsa_indexer_topk_freq=2, dsa_indexer_skip_topk_offset=3)
    sizes = shared.shape.indexer
    assert sizes is not None
    assert [sizes.chooses(layer) for layer in range(9)] == [True] * 3 + [False, True] * 3
    assert sparse_attention(shared, 3, True)
    assert not [name for name, _ in forward(shared) if name.startswith("indexer")]
    every = tape_of(**SPARSE, dsa_indexer_topk_freq=4).shape.indexer
    assert every is not None
    assert [layer for layer in range(9) if every.chooses(layer)] == [0, 4, 8]


def test_the_indexer_sees_all_and_attention_what_it_chose() -> None:
    tape = tape_of(**SPARSE)
    assert sparse_attention(tape, 0, True)
    made = forward(tape)
    assert {key: flops for key, flops in made.items() if key[0].startswith("indexer")} == INDEXER
    # 2 heads; queries and keys 4 wide, values 2
    assert made["core_attention", SparsePair(2)] == 2 * 2 * (4 + 2)


@pytest.mark.parametrize(("coefficient", "linear", "scores"), [(0, 0, 0), (0.01, 1, 2)])
def test_only_a_loss_of_its_own_trains_it(coefficient, linear, scores) -> None:
    tape = tape_of(**SPARSE, dsa_indexer_loss_coeff=coefficient)
    sparse_attention(tape, 0, True)
    backward = {
        term.component: flops
        for term, flops in tape.flops.items()
        if term.phase == "bwd" and "indexer" in term[0]
    }
    expected = {name: flops * linear for (name, _), flops in INDEXER.items()}
    assert backward == expected | {"indexer.scores": 16 * scores}


@pytest.mark.parametrize(
    ("length", "full", "causal_half", "visible"),
    # 1 + 2 + 2 + 2 + 2 of 5; a sequence not longer than what is seen is as dense as any
    [(5, 25, 2 * 5 - 2, 9), (2, 4, 2, 3)],
)
def test_pairs(length, full, causal_half, visible) -> None:
    made = {}
    for convention in ("full", "causal_half", "visible"):
        measure = Measure(tape_of().shape, Step(3, length), convention, padded=False)
        made[convention] = SparsePair(2).doubled(measure)
    assert made == {"full": 6 * full, "causal_half": 6 * causal_half, "visible": 6 * visible}


def test_packed_documents_of_unknown_lengths_are_not_guessed() -> None:
    model = tape_of(**SPARSE).shape
    assert step_flops(model, 2, 8).model_flops is not None
    assert step_flops(model, 2, 8, Packed(15, 83)).model_flops is None


def test_it_needs_its_sizes() -> None:
    with pytest.raises(
        PerfError, match="needs dsa_indexer_n_heads, dsa_indexer_head_dim and dsa_indexer_topk"
    ):
        sparse_attention(tape_of(), 0, True)
