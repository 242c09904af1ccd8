"""N-gram memories: counted in FlagScale's own EngramModule (Megatron-LM-FL 175ae90ec)."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.families.engram import engram
from flagscale_perf.flops_calculator import ModelShape, count
from flagscale_perf.spine.errors import PerfError
from tests.unit.flops.families.walks import SIZES, tape_of


# hidden size, n, numbers of an n-gram, heads, kernel, rows, layers -> products of 14 tokens, and weights
@pytest.mark.parametrize(
    ("sizes", "counted"),
    [
        ((24, 2, 6, 3, 2, [100], [0]), (8_064, 1_078)),
        ((8, 4, 12, 4, 3, [20, 30, 40], [0, 1, 2]), (48_384, 13_182)),
    ],
)
def test_what_is_looked_up_is_multiplied_twice(sizes: tuple, counted: tuple[int, int]) -> None:
    hidden, n, numbers, heads, kernel, rows, layers = sizes
    plain = SIZES | {"num_layers": 4, "hidden_size": hidden}
    shape = ModelShape.from_args(
        plain
        | {
            "use_engram": True,
            "max_ngram_size": n,
            "n_embed_per_ngram": numbers,
            "n_head_per_ngram": heads,
            "engram_kernel_size": kernel,
            "engram_vocab_size": rows,
            "engram_layer_ids": layers,
        }
    )
    parts = count(shape, 2, 7).components
    projections = [parts[f"engram.{name}_proj"] for name in ("key", "value")]
    assert sum(each["fwd"] for each in projections) == counted[0]
    assert sum(each["bwd"] for each in projections) == 2 * counted[0]
    # what goes out; the host convolves the padding behind the sequence, too
    assert parts["engram.conv1d"]["fwd"] == len(layers) * 2 * 14 * kernel * hidden
    assert shape.parameters - ModelShape.from_args(plain).parameters == counted[1]


def test_a_layer_without_one_has_no_sizes() -> None:
    with pytest.raises(PerfError, match="needs engram_layer_ids"):
        engram(tape_of(), 0, True)
