"""N-gram memories: rows of tables, looked up by hashes of a token and those before it."""

from __future__ import annotations

from flagscale_perf.flops.tape import Tape, Weight
from flagscale_perf.spine.errors import PerfError


def engram(tape: Tape, layer: int, x: bool) -> bool:
    """FlagScale's engram (arXiv:2601.07372), before a layer's other blocks: `EngramModule`."""
    h, sizes = tape.shape.hidden, tape.shape.engram
    if sizes is None or layer not in sizes.layers:
        raise PerfError("model: this family needs engram_layer_ids, engram_vocab_size and n_embed_per_ngram")
    # with a norm of the key and one of the value
    tape.parameters += sizes.tables[sizes.layers.index(layer)] + 2 * h
    # what was looked up, E -> h twice; the gate between query and key is elementwise
    y = tape.linear(Weight("engram.key_proj", sizes.width, h, bias=True), tape.trained)
    y |= tape.linear(Weight("engram.value_proj", sizes.width, h, bias=True), tape.trained)
    return tape.conv("engram.conv1d", h, sizes.conv, x or y)
