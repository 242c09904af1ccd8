"""The estimate of a training's memory, by numbers a reader can work out; real runs are measured in
tests/processes/test_memory_need.py.
"""

from dataclasses import replace

import pytest

from flagscale_perf.flops.memory import PROCESS_BYTES, Layout, MemoryNeed, memory_need
from flagscale_perf.flops.shape import Experts, Recompute, Shape
from flagscale_perf.flops.towers import Encoder
from flagscale_perf.spine.errors import PerfError

SHAPE = Shape(layers=2, hidden=4, heads=2, kv_groups=2, head_dim=2, ffn=10, gated=False, vocab=100)
GIVEN = {
    "micro_batch_size": 3,
    "global_batch_size": 24,
    "seq_length": 8,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
}


def layout(ranks: int = 1, **changed) -> Layout:
    return Layout.from_args(GIVEN | changed, ranks, ranks)


@pytest.mark.parametrize(
    ("ranks", "changed", "bytes_of_a_parameter"),
    [
        (1, {}, 4 + 4 + 8),
        (1, {"optimizer": "sgd"}, 4 + 4 + 4),
        (1, {"bf16": True}, 2 + 4 + 12),
        (1, {"fp16": True}, 2 + 2 + 12),
        (1, {"fp16": True, "accumulate_allreduce_grads_in_fp32": True}, 2 + 4 + 12),
        (8, {"bf16": True}, 2 + 4 + 12),
        (8, {"bf16": True, "use_distributed_optimizer": True}, 2 + 4 + 12 / 8),
        (8, {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}, 16 / 4),
        (
            8,
            {"bf16": True, "use_distributed_optimizer": True, "tensor_model_parallel_size": 2},
            (2 + 4 + 12 / 4) / 2,
        ),
        (8, {"context_parallel_size": 2, "use_distributed_optimizer": True}, 4 + 4 + 8 / 8),
    ],
)
def test_weights_gradients_and_optimizer(ranks, changed, bytes_of_a_parameter) -> None:
    assert memory_need(SHAPE, 1000, layout(ranks, **changed)).state_bytes == 1000 * bytes_of_a_parameter


def test_experts_are_divided_over_their_own_ranks() -> None:
    experts = Experts(count=4, topk=1, ffn_hidden_size=10, layers=(False, True))
    shape = replace(SHAPE, experts=experts)
    # of 1000 parameters 4 x 2 x 4 x 10 = 320 are the experts'; 2 ranks hold 160 of them each
    need = memory_need(shape, 1000, layout(2, expert_model_parallel_size=2))
    assert need.state_bytes == (680 + 160) * 16


# A layer, fp32, of one token. Norms: 2 x 4 x (8 + 4). Attention: queries, keys and values 3 x 4, rotary
# copies, repeated keys and values and the context 4 x 4; scores 2 heads x 8 keys. Feed-forward: 2 x 10.
LAYER = 96 + 4 * (12 + 16) + 4 * 16 + 4 * 20
BACKWARD = 2 * 4 * 16  # of one layer
LOGITS = 100 * 6
TOKENS = 3 * 8


def test_activations() -> None:
    need = memory_need(SHAPE, 1000, layout())
    assert need == MemoryNeed(1, 0, 16_000, TOKENS * (2 * LAYER + BACKWARD + LOGITS), 0, PROCESS_BYTES)
    assert need.rank_bytes == need.total_bytes == 16_000 + 24 * (704 + 128 + 600) + PROCESS_BYTES


def test_all_ranks_of_the_machine_count() -> None:
    one, four = (memory_need(SHAPE, 1000, layout(ranks)) for ranks in (1, 4))
    assert four.total_bytes == 4 * four.rank_bytes == 4 * one.rank_bytes


def test_layers_that_are_computed_again_keep_their_input_only() -> None:
    shape = replace(SHAPE, recompute=Recompute(full_layers=(True, True)))
    need = memory_need(shape, 1000, layout())
    assert need.activation_bytes == TOKENS * (2 * 4 * 4 + LAYER + BACKWARD + LOGITS)


def test_scores_that_are_computed_again_are_not_kept() -> None:
    shape = replace(SHAPE, recompute=Recompute(modules=("core_attn",)))
    kept = memory_need(SHAPE, 1000, layout()).activation_bytes
    assert memory_need(shape, 1000, layout()).activation_bytes == kept - TOKENS * 2 * 4 * 16


def test_a_pipeline_keeps_several_micro_batches_of_fewer_layers() -> None:
    # two stages of one layer: 2 micro batches are on their way in the first, 1 in the second
    need = memory_need(SHAPE, 1000, layout(2, pipeline_model_parallel_size=2))
    assert need.activation_bytes == TOKENS * (1.5 * LAYER + BACKWARD + LOGITS / 2)


def test_dropout_and_a_long_softmax_keep_more() -> None:
    plain = memory_need(SHAPE, 1000, layout(bf16=True)).activation_bytes
    long = memory_need(SHAPE, 1000, layout(bf16=True, attention_softmax_in_fp32=True)).activation_bytes
    assert (
        long - plain == TOKENS * (2 + 2) * 16 * 4
    )  # 4 bytes more in two layers and twice in the backward pass
    dropped = memory_need(SHAPE, 1000, layout(bf16=True, attention_dropout=0.1)).activation_bytes
    assert dropped - plain == TOKENS * (2 + 2) * 16 * 3  # its mask and its result


def test_ranks_that_the_parallel_sizes_do_not_divide_are_refused() -> None:
    with pytest.raises(PerfError) as refusal:
        layout(6, tensor_model_parallel_size=4)
    assert str(refusal.value) == (
        "6 ranks cannot be divided by tensor x pipeline x context parallel sizes (4 x 1 x 1); start a"
        " multiple of 4"
    )


@pytest.mark.parametrize(
    ("ranks", "changed", "exchanged"),
    [
        (2, {}, 0),
        (1, {"use_distributed_optimizer": True}, 0),
        (2, {"use_distributed_optimizer": True}, 1000 * (4 + 4)),
        (
            4,
            {"use_distributed_optimizer": True, "tensor_model_parallel_size": 2, "bf16": True},
            500 * (2 + 4),
        ),
    ],
)
def test_dividing_gradients_and_gathering_weights_copies_them(ranks, changed, exchanged) -> None:
    assert memory_need(SHAPE, 1000, layout(ranks, **changed)).exchange_bytes == exchanged


def test_the_order_of_the_samples_is_in_memory_once() -> None:
    for given, samples in (({"train_samples": 1000}, 1000), ({"train_iters": 50}, 50 * 24)):
        need = memory_need(SHAPE, 1000, layout(4, **given))
        assert need.index_bytes == 12 * samples
        assert need.total_bytes == 4 * need.rank_bytes + 12 * samples


def test_encoders_are_not_estimated() -> None:
    with pytest.raises(PerfError, match="what an encoder keeps for the backward pass is not known"):
        memory_need(replace(SHAPE, encoder=Encoder(2)), 1000, layout())


def test_layers_of_unknown_blocks_are_not_estimated() -> None:
    shape = replace(SHAPE, blocks=(("attention", "mlp"), ("mamba", "mlp")))
    with pytest.raises(PerfError, match="what a layer of mamba and mlp keeps for the backward pass is not"):
        memory_need(shape, 1000, layout())
