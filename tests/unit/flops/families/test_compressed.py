"""DeepSeek-V4's attention, by hand: h 4, 2 heads of width 2, r_q 5, output in 2 parts of rank 3."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.families.compressed import CompressedPair, compressed_attention
from flagscale_perf.flops.step import Measure, Step
from flagscale_perf.flops.units import TOKEN
from flagscale_perf.spine.errors import PerfError
from tests.unit.flops.families.test_indexer import SPARSE
from tests.unit.flops.families.walks import forward, tape_of

COMPRESSED = SPARSE | {
    "experimental_attention_variant": "dsv4_hybrid",
    "csa_compress_ratios": [0, 4, 128],
    "num_layers": 3,
    "csa_window_size": 6,
    "o_groups": 2,
    "o_lora_rank": 3,
}
EVERY_LAYER = {
    ("qkv_proj.q_down_proj", TOKEN): 2 * 4 * 5,
    ("qkv_proj.q_up_proj", TOKEN): 2 * 5 * 4,
    ("qkv_proj.kv_proj", TOKEN): 2 * 4 * 2,
    ("out_proj.group_proj", TOKEN): 2 * 4 * 3,
    ("out_proj", TOKEN): 2 * 6 * 4,
}
COMPRESSOR = ("compressor.wkv", "compressor.wgate")
INDEXER = {
    ("indexer.wq_b", TOKEN): 2 * 5 * 6,
    ("indexer.wkv", TOKEN): 2 * 4 * 6,
    ("indexer.wgate", TOKEN): 2 * 4 * 6,
    ("indexer.weights_proj", TOKEN): 2 * 4 * 2,
    ("indexer.scores", CompressedPair(0, 4)): 2 * 6 + 2 * 2,
}


@pytest.mark.parametrize(
    ("layer", "more", "pair"),
    [
        (0, {}, CompressedPair(6, 0)),
        (1, {(name, TOKEN): 2 * 4 * 4 for name in COMPRESSOR} | INDEXER, CompressedPair(6, 4, 2)),
        (2, {(name, TOKEN): 2 * 4 * 2 for name in COMPRESSOR}, CompressedPair(6, 128)),
    ],
)
def test_each_ratio_has_its_parts(layer: int, more: dict, pair: CompressedPair) -> None:
    tape = tape_of(**COMPRESSED)
    assert compressed_attention(tape, layer, True)
    assert forward(tape) == EVERY_LAYER | more | {("core_attention", pair): 2 * 4 + 2 * 4}


def test_in_dense_mode_all_compressed_keys_are_seen() -> None:
    tape = tape_of(**COMPRESSED, csa_dense_mode=True)
    compressed_attention(tape, 1, True)
    assert ("core_attention", CompressedPair(6, 4)) in forward(tape)


@pytest.mark.parametrize("length", [3, 6, 23, 24])
@pytest.mark.parametrize(
    "pair", [CompressedPair(6, 0), CompressedPair(6, 4), CompressedPair(6, 4, 2), CompressedPair(0, 4)]
)
def test_pairs(pair: CompressedPair, length: int) -> None:
    made = {
        convention: pair.doubled(Measure(tape_of().shape, Step(3, length), convention, padded=False)) / 6
        for convention in ("full", "causal_half", "visible")
    }
    most = length if pair.topk is None else pair.topk
    ratio = pair.ratio or 1 << 30
    seen = [(min(i, pair.window), min(i // ratio, most)) for i in range(1, length + 1)]
    # halves as if time were continuous
    near, far = seen[-1]
    half = length * (near + far) - near**2 / 2 - pair.ratio * far**2 / 2
    assert made == {"full": length * sum(seen[-1]), "causal_half": half, "visible": sum(map(sum, seen))}


@pytest.mark.parametrize(
    ("ratios", "says"),
    [
        ([0, 4], "csa_compress_ratios describes 2 layers, and the model has 3"),
        ([0, 4, 8], "write a list of 0, 4 and 128, or for example"),
        ("[0]+[4]*3", "describes 4 layers"),
    ],
)
def test_ratios_that_cannot_be(ratios: object, says: str) -> None:
    with pytest.raises(PerfError, match=says):
        tape_of(**COMPRESSED | {"csa_compress_ratios": ratios})


def test_it_needs_its_sizes() -> None:
    with pytest.raises(PerfError, match="needs q_lora_rank, v_head_dim and csa_compress_ratios"):
        compressed_attention(tape_of(), 0, True)
