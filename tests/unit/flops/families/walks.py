"""A small model, and what a block writes on the tape of it."""

from __future__ import annotations

from flagscale_perf.flops.tape import Tape
from flagscale_perf.flops.units import Unit
from flagscale_perf.flops_calculator import ModelShape

# h 4, 2 heads of width 2, inner width 8, vocabulary 16
SIZES = {
    "num_layers": 1,
    "hidden_size": 4,
    "num_attention_heads": 2,
    "ffn_hidden_size": 8,
    "padded_vocab_size": 16,
    "normalization": "RMSNorm",
    "add_bias_linear": False,
    "position_embedding_type": "rope",
}


def tape_of(**more: object) -> Tape:
    return Tape(ModelShape.from_args(SIZES | more))


def forward(tape: Tape) -> dict[tuple[str, Unit], int]:
    return {(term.component, term.unit): flops for term, flops in tape.flops.items() if term.phase == "fwd"}
