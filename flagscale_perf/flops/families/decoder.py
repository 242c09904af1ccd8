"""The decoder: embedding, layers, multi-token prediction, output layer. h = hidden size, V = vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flagscale_perf.flops.families import BLOCKS
from flagscale_perf.flops.tape import Tape, Weight


def decoder(tape: Tape, seen: bool = False) -> None:
    """A decoder-only model, such as `GPTModel` and `MambaModel`: every layer by the names of its blocks.
    `seen`: whether a gradient flows through inputs other than the embedded tokens, such as images.
    """
    shape = tape.shape
    tape.parameters += shape.hidden * (shape.vocab + shape.learned_positions)
    embedded = x = tape.is_trained("embedding") or seen
    for layer in tape.layers():
        x = layer_of_blocks(tape, layer, x)
    if shape.streams:
        tape.parameters += 1
        x = tape.linear(Weight("mhc.end", shape.streams * shape.hidden, shape.streams, bias=True), x)
    further = x = tape.norm(x, shape.hidden)
    for depth in range(shape.mtp_layers):
        block, before = partial(layer_of_blocks, tape, shape.layers + depth), tape.parameters
        further = _predict_further(tape, embedded, further, block)
        if depth and shape.mtp_shared:
            tape.parameters = before
    tape.parameters += 0 if shape.tied_embeddings else shape.hidden * shape.vocab
    logits(tape, "", x)


def layer_of_blocks(tape: Tape, layer: int, x: bool) -> bool:
    """Consecutive blocks, each with its own norm and residual connection: `TransformerLayer`."""
    for name in tape.shape.layer_blocks(layer):
        if tape.shape.streams:
            x = _mixed_streams(tape, x)
        x = BLOCKS[name](tape, layer, tape.norm(x, tape.shape.hidden)) or x
    return x


def _mixed_streams(tape: Tape, x: bool) -> bool:
    """n residual streams (mHC, arXiv:2512.24880) read and mixed by a block: `HyperConnectionModule`."""
    n, h = tape.shape.streams, tape.shape.hidden
    # mapping_proj: n h -> weights to read by, to write by, and to mix by
    tape.parameters += 3
    y = tape.linear(Weight("mhc.mapping", n * h, n * n + 2 * n, bias=True), x)
    mixing = 2 * n * n * h
    tape.add("mhc.mixing", tape.row, fwd=mixing, bwd=mixing * (x + y))
    return y


def _predict_further(tape: Tape, embedded: bool, x: bool, layer: Callable[[bool], bool]) -> bool:
    """One depth of multi-token prediction (arXiv:2412.19437), and its pass through the output layer."""
    shape = tape.shape
    with tape.layer("mtp", "mtp_", repeated=shape.recompute.full_mtp):
        # eh_proj: the next token's embedding beside the hidden state, 2 h -> h
        pair = tape.norm(embedded, shape.hidden) | tape.norm(x, shape.hidden)
        y = tape.linear(Weight("eh_proj", 2 * shape.hidden, shape.hidden), pair)
        y = tape.norm(layer(y), shape.hidden)
    logits(tape, "mtp_", y, learns=not shape.mtp_detached)
    return y


def logits(tape: Tape, prefix: str, x: bool, learns: bool = True) -> None:
    """The output layer, h -> V, tied to the embedding or not; never recomputed. `decoder` counts its
    parameters. `learns`: whether its weight may get a gradient from here.
    """
    shape = tape.shape
    flops = 2 * shape.hidden * shape.vocab
    trained = learns and tape.is_trained("embedding" if shape.tied_embeddings else "output_layer")
    tape.add(prefix + "logits", tape.row, fwd=flops, bwd=flops * (x + trained))
