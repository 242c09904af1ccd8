"""Softmax attention, grouped and latent. n = query heads, g = key/value groups, d = head width."""

from __future__ import annotations

from flagscale_perf.flops.shape import LatentAttention
from flagscale_perf.flops.tape import Tape, Weight, needed


def grouped_attention(tape: Tape, layer: int, x: bool) -> bool:
    """Multi-head and grouped-query attention (arXiv:2305.13245): `SelfAttention`."""
    shape = tape.shape
    heads_width, groups_width = shape.heads * shape.head_dim, shape.kv_groups * shape.head_dim
    # linear_qkv: h -> (n + 2 g) d; with attention_output_gate a second block of n d beside the queries, with
    # head_wise_attn_gate n more
    qkv = heads_width * (2 if shape.output_gate else 1) + 2 * groups_width + shape.heads * shape.head_gate
    y = tape.linear(
        Weight("qkv_proj", shape.hidden, qkv, "linear_qkv", shape.linear_bias or shape.qkv_bias), x
    )
    if shape.qk_norm:
        y = tape.norm(tape.norm(y, shape.head_dim), shape.head_dim)
    tape.parameters += shape.heads * shape.sinks
    with tape.recomputed("core_attn"):
        y = tape.attention(y, y, y, tape.pairs(layer), (heads_width, heads_width))
    # linear_proj: n d -> h
    bias = shape.linear_bias or shape.out_bias
    return tape.linear(Weight("out_proj", heads_width, shape.hidden, "linear_proj", bias), y)


def latent_attention(tape: Tape, layer: int, x: bool) -> bool:
    """Multi-latent attention (arXiv:2405.04434): `MLASelfAttention`.

    Ranks r_q and r_kv; a query is d_c + d_r wide (without and with position), a value d_v.
    """
    shape = tape.shape
    mla = needed(shape.latent, "multi_latent_attention; give q_lora_rank, kv_lora_rank and the head widths")
    # linear_kv_down_proj: h -> r_kv + d_r; the rotary part becomes part of the key unchanged
    latent = tape.linear(
        Weight(
            "qkv_proj.kv_down_proj",
            shape.hidden,
            mla.kv_lora_rank + mla.qk_pos_emb_head_dim,
            "linear_kv_down_proj",
            shape.out_bias,
        ),
        x,
    )
    kv = tape.norm(latent, mla.kv_lora_rank) if shape.qk_norm else latent
    q = _latent_query_down(tape, mla, x)
    with tape.recomputed("mla_up_proj"):
        q = _latent_query_up(tape, mla, q)
        # linear_kv_up_proj: r_kv -> n (d_c + d_v)
        up = shape.heads * (mla.qk_head_dim + mla.v_head_dim)
        kv = tape.linear(Weight("qkv_proj.kv_up_proj", mla.kv_lora_rank, up, "linear_kv_up_proj"), kv)
    with tape.recomputed("core_attn"):
        widths = shape.heads * mla.q_dim, shape.heads * mla.v_head_dim
        y = tape.attention(q, kv or latent, kv, tape.pairs(layer), widths)
    # linear_proj: n d_v -> h
    bias = shape.linear_bias or shape.out_bias
    return tape.linear(Weight("out_proj", shape.heads * mla.v_head_dim, shape.hidden, "linear_proj", bias), y)


def _latent_query_down(tape: Tape, mla: LatentAttention, x: bool) -> bool:
    if mla.q_lora_rank is None:
        return x
    # linear_q_down_proj: h -> r_q
    down = Weight(
        "qkv_proj.q_down_proj", tape.shape.hidden, mla.q_lora_rank, "linear_q_down_proj", tape.shape.out_bias
    )
    q = tape.linear(down, x)
    return tape.norm(q, mla.q_lora_rank) if tape.shape.qk_norm else q


def _latent_query_up(tape: Tape, mla: LatentAttention, q: bool) -> bool:
    width = tape.shape.heads * mla.q_dim
    if mla.q_lora_rank is None:
        # linear_q_proj: h -> n (d_c + d_r)
        return tape.linear(Weight("qkv_proj.q_proj", tape.shape.hidden, width, "linear_q_proj"), q)
    # linear_q_up_proj: r_q -> n (d_c + d_r)
    return tape.linear(Weight("qkv_proj.q_up_proj", mla.q_lora_rank, width, "linear_q_up_proj"), q)
