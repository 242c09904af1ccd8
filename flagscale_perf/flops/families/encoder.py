"""Encoders: T5's with the decoder that looks at it, and BERT. h = hidden size, n = heads, d = head width."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from flagscale_perf.flops.families import Block
from flagscale_perf.flops.families.attention import grouped_attention
from flagscale_perf.flops.families.decoder import logits
from flagscale_perf.flops.families.feed_forward import dense_mlp
from flagscale_perf.flops.tape import Tape, Weight, needed
from flagscale_perf.flops.tower_units import CROSS_PAIR, DECODER_PAIR, DECODER_TOKEN, FULL_PAIR, SEQUENCE
from flagscale_perf.flops.units import TOKEN


def encoder_decoder(tape: Tape) -> None:
    """T5 (arXiv:1910.10683): an encoder over `seq_length`, a decoder over `decoder_seq_length` tokens."""
    shape = tape.shape
    encoder = needed(shape.encoder, "an encoder; give encoder_num_layers")
    tape.parameters += shape.hidden * (shape.vocab + shape.learned_positions)
    tape.parameters += 2 * encoder.position_buckets * shape.heads
    embedded = memory = tape.is_trained("embedding")
    blocks: list[Block] = [grouped_attention, dense_mlp]
    with tape.stream("encoder_", TOKEN, FULL_PAIR):
        for layer, repeated in enumerate(encoder.repeated or (False,) * encoder.layers):
            with tape.layer("encoder", repeated=repeated):
                memory = _pre_norm(tape, layer, memory, blocks)
        with tape.layer("encoder"):
            memory = tape.norm(memory, shape.hidden)
    blocks.insert(1, partial(_cross_attention, memory))
    x = embedded
    with tape.stream("", DECODER_TOKEN, DECODER_PAIR):
        for layer in tape.layers():
            x = _pre_norm(tape, layer, x, blocks)
        x = tape.norm(x, shape.hidden)
        tape.parameters += 0 if shape.tied_embeddings else shape.hidden * shape.vocab
        tape.parameters += shape.vocab if encoder.output_bias else 0
        logits(tape, "", x)


def _pre_norm(tape: Tape, layer: int, x: bool, blocks: Sequence[Block]) -> bool:
    for block in blocks:
        x = block(tape, layer, tape.norm(x, tape.shape.hidden)) or x
    return x


def _cross_attention(memory: bool, tape: Tape, layer: int, x: bool) -> bool:
    """`CrossAttention`: queries of the decoder, keys and values of the encoder's output, the `memory`."""
    shape = tape.shape
    h, width, bias = shape.hidden, shape.heads * shape.head_dim, shape.linear_bias
    with tape.stream("cross_", DECODER_TOKEN, CROSS_PAIR):
        q = tape.linear(Weight("q_proj", h, width, bias=bias), x)
        # linear_kv: h -> 2 n d, over the encoder's tokens
        kv = tape.linear(Weight("kv_proj", h, 2 * width, bias=bias, unit=TOKEN), memory)
        with tape.recomputed("core_attn"):
            y = tape.attention(q, kv, kv, CROSS_PAIR, (width, width))
        return tape.linear(Weight("out_proj", width, h, bias=bias), y)


def bert(tape: Tape) -> None:
    """BERT as it is pretrained (arXiv:1810.04805): every token and the next sentence are predicted."""
    shape, h = tape.shape, tape.shape.hidden
    heads = needed(shape.bert, "BERT's heads; give model_family bert")
    with tape.layer("embedding"):
        tape.parameters += h * (shape.vocab + shape.learned_positions + heads.token_types)
        x = tape.trained
        x = tape.norm(x, h) if heads.post_norm else x
    with tape.stream("encoder_", TOKEN, FULL_PAIR):
        for layer in tape.layers():
            x = _bert_layer(tape, layer, x, heads.post_norm)
    x = x if heads.post_norm else tape.norm(x, h)
    if heads.next_sentence:
        pooled = tape.linear(Weight("pooler", h, h, bias=True, unit=SEQUENCE), x)
        tape.linear(Weight("nsp_head", h, 2, bias=True, unit=SEQUENCE), pooled)
    y = tape.norm(tape.linear(Weight("mlm_transform", h, h, bias=True), x), h)
    tape.parameters += shape.vocab + (0 if shape.tied_embeddings else h * shape.vocab)
    logits(tape, "", y)


def _bert_layer(tape: Tape, layer: int, x: bool, post_norm: bool) -> bool:
    blocks = (grouped_attention, dense_mlp)
    if not post_norm:
        return _pre_norm(tape, layer, x, blocks)
    for block in blocks:
        x = tape.norm(block(tape, layer, x) or x, tape.shape.hidden)
    return x
