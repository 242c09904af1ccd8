"""RWKV-4. a = width of the time mixing, f = inner width of the channel mixing."""

from __future__ import annotations

from flagscale_perf.flops.sizes import Rwkv
from flagscale_perf.flops.tape import Tape, Weight, needed


def time_mix(tape: Tape, layer: int, x: bool) -> bool:
    """Key, value and receptance h -> a, output a -> h (arXiv:2305.13048). The WKV operator is no product."""
    h, width = tape.shape.hidden, _sizes(tape).attention
    mixed = x or tape.trained  # the mixing weights stand before the matrices
    y = False
    for _ in range(3):
        y |= tape.linear(Weight("rwkv_time_mix", h, width), mixed)
    tape.parameters += 3 * h + 2 * width  # mixing weights; decay and first
    # the first layer has a norm before its own
    tape.parameters += 0 if layer else 2 * h
    return tape.linear(Weight("rwkv_time_mix", width, h), y)


def channel_mix(tape: Tape, layer: int, x: bool) -> bool:
    """Key: h -> f, value: f -> h, receptance: h -> h."""
    h, inner = tape.shape.hidden, _sizes(tape).ffn
    mixed = x or tape.trained
    tape.parameters += 2 * h
    y = tape.linear(Weight("rwkv_channel_mix", h, inner), mixed)
    y = tape.linear(Weight("rwkv_channel_mix", inner, h), y)
    return tape.linear(Weight("rwkv_channel_mix", h, h), mixed) or y


def _sizes(tape: Tape) -> Rwkv:
    return needed(tape.shape.rwkv, "RWKV's sizes; give attention_hidden_size and ffn_hidden_size")
