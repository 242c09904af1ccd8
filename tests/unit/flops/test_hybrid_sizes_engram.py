"""N-gram memories as FlagScale's arguments say them."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.hybrid_sizes import engram_of
from flagscale_perf.flops.sizes import Engram
from flagscale_perf.flops_calculator import ModelShape
from flagscale_perf.spine.errors import PerfError
from tests.unit.flops.families.walks import SIZES

MEMORIES = {
    "num_layers": 4,
    "use_engram": True,
    "engram_layer_ids": [1, 3],
    "engram_vocab_size": [8, 14],
    "max_ngram_size": 3,
    "n_embed_per_ngram": 8,
    "n_head_per_ngram": 2,
    "engram_kernel_size": 4,
}


def test_tables_have_primes_for_rows_and_none_twice() -> None:
    # 11, 13 and 17, 19 rows of 8 / 2 numbers, and in the next layer 23, 29 and 31, 37
    assert engram_of(Arguments(MEMORIES)) == Engram((1, 3), 16, 4, (4 * 60, 4 * 120))
    shared = engram_of(Arguments(MEMORIES | {"engram_embedding_parallel_size": 7}))
    assert shared is not None
    assert shared.tables == (4 * 63, 4 * 126)  # filled up to a multiple
    tensor = {"engram_embedding_parallel_method": "allreduce", "tensor_model_parallel_size": 8}
    split = engram_of(Arguments(MEMORIES | tensor))
    assert split is not None
    assert split.tables == (4 * 64, 4 * 120)
    assert engram_of(Arguments(MEMORIES | {"use_engram": False})) is None


def test_a_layer_has_one_before_its_other_blocks_and_further_predictions_have_none() -> None:
    shape = ModelShape.from_args(SIZES | MEMORIES | {"mtp_num_layers": 1})
    usual = ("attention", "mlp")
    assert shape.blocks == (usual, ("engram", *usual), usual, ("engram", *usual))
    assert shape.layer_blocks(4) == usual


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"engram_layer_ids": None}, "engram_layer_ids is None; write a list of whole numbers"),
        ({"engram_layer_ids": [4]}, r"engram_layer_ids is \[4\], num_layers is 4; give layers from 0 on"),
        ({"engram_layer_ids": [1, 1]}, "each once"),
        ({"engram_vocab_size": [8]}, "engram_vocab_size has 1 numbers, max_ngram_size is 3"),
        ({"engram_vocab_size": [8, 10**12]}, "engram_vocab_size is .*; write a list"),
        ({"n_head_per_ngram": 3}, "n_head_per_ngram is 3; give a divisor of n_embed_per_ngram 8"),
        ({"n_head_per_ngram": 8192, "n_embed_per_ngram": 8192}, "at most 4096 tables"),
        ({"enable_hyper_connections": True}, "use_engram and enable_hyper_connections are both set"),
        ({"hybrid_layer_pattern": "****"}, "use_engram in a hybrid model cannot be counted"),
    ],
)
def test_memories_that_cannot_be(more: dict[str, object], says: str) -> None:
    with pytest.raises(PerfError, match=says):
        ModelShape.from_args(SIZES | MEMORIES | more)
