"""The blocks of model families, each as a walk over its linear layers; lines name Megatron-Core's modules.

h = hidden size, n = query heads, g = key/value groups, d = head width, f = inner width, V = vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flagscale_perf.flops.shape import LatentAttention
from flagscale_perf.flops.tape import EXPERT_ROW, TOKEN, Tape, Weight
from flagscale_perf.spine.errors import PerfError

# Takes the tape, the layer's number from 0, and whether a gradient flows through the input; returns whether
# one flows through the output.
Block = Callable[[Tape, int, bool], bool]


def grouped_attention(tape: Tape, layer: int, x: bool) -> bool:
    """Multi-head and grouped-query attention (arXiv:2305.13245): `SelfAttention`."""
    shape = tape.shape
    heads_width, groups_width = shape.heads * shape.head_dim, shape.kv_groups * shape.head_dim
    # linear_qkv: h -> (n + 2 g) d; with attention_output_gate a second block of n d beside the queries
    qkv = heads_width * (2 if shape.output_gate else 1) + 2 * groups_width
    y = tape.linear(
        Weight("qkv_proj", shape.hidden, qkv, "linear_qkv", shape.linear_bias or shape.qkv_bias), x
    )
    if shape.qk_norm:
        y = tape.norm(tape.norm(y, shape.head_dim), shape.head_dim)
    with tape.recomputed("core_attn"):
        y = tape.attention(y, y, y, layer, (shape.head_dim, shape.head_dim))
    # linear_proj: n d -> h
    return tape.linear(Weight("out_proj", heads_width, shape.hidden, "linear_proj", shape.linear_bias), y)


def latent_attention(tape: Tape, layer: int, x: bool) -> bool:
    """Multi-latent attention (arXiv:2405.04434): `MLASelfAttention`.

    Ranks r_q and r_kv; a query is d_c + d_r wide (without and with position), a value d_v.
    """
    shape = tape.shape
    mla = shape.latent
    if mla is None:
        raise PerfError(
            "model: this family needs multi_latent_attention; "
            "give q_lora_rank, kv_lora_rank and the head widths"
        )
    # linear_kv_down_proj: h -> r_kv + d_r; the rotary part becomes part of the key unchanged
    latent = tape.linear(
        Weight(
            "qkv_proj.kv_down_proj",
            shape.hidden,
            mla.kv_lora_rank + mla.qk_pos_emb_head_dim,
            "linear_kv_down_proj",
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
        y = tape.attention(q, kv or latent, kv, layer, (mla.q_dim, mla.v_head_dim))
    # linear_proj: n d_v -> h
    return tape.linear(
        Weight("out_proj", shape.heads * mla.v_head_dim, shape.hidden, "linear_proj", shape.linear_bias), y
    )


def _latent_query_down(tape: Tape, mla: LatentAttention, x: bool) -> bool:
    if mla.q_lora_rank is None:
        return x
    # linear_q_down_proj: h -> r_q
    q = tape.linear(
        Weight("qkv_proj.q_down_proj", tape.shape.hidden, mla.q_lora_rank, "linear_q_down_proj"), x
    )
    return tape.norm(q, mla.q_lora_rank) if tape.shape.qk_norm else q


def _latent_query_up(tape: Tape, mla: LatentAttention, q: bool) -> bool:
    width = tape.shape.heads * mla.q_dim
    if mla.q_lora_rank is None:
        # linear_q_proj: h -> n (d_c + d_r)
        return tape.linear(Weight("qkv_proj.q_proj", tape.shape.hidden, width, "linear_q_proj"), q)
    # linear_q_up_proj: r_q -> n (d_c + d_r)
    return tape.linear(Weight("qkv_proj.q_up_proj", mla.q_lora_rank, width, "linear_q_up_proj"), q)


def dense_mlp(tape: Tape, layer: int, x: bool) -> bool:
    """A dense feed-forward block: `MLP`."""
    with tape.recomputed("mlp"):
        return _feed_forward(
            tape, Weight("mlp", tape.shape.hidden, tape.shape.ffn, bias=tape.shape.linear_bias), x
        )


def _feed_forward(tape: Tape, up: Weight, x: bool) -> bool:
    # linear_fc1: w -> f, or 2 f with a gate (SwiGLU, GeGLU: arXiv:2002.05202); linear_fc2: f -> w
    y = tape.linear(up._replace(module="linear_fc1", n_out=up.n_out * (2 if tape.shape.gated else 1)), x)
    return tape.linear(up._replace(module="linear_fc2", n_in=up.n_out, n_out=up.n_in), y)


def mixture(tape: Tape, layer: int, x: bool) -> bool:
    """Mixture of experts (arXiv:2101.03961; fine-grained and shared: arXiv:2401.06066): `MoELayer`."""
    shape, moe = tape.shape, tape.shape.experts
    if moe is None:
        raise PerfError("model: this family needs experts; give num_experts and moe_router_topk")
    with tape.recomputed("moe"):
        y = _router(tape, moe.count, x)
        rows, width = x, shape.hidden
        if moe.latent_size is not None:
            # fc1_latent_proj: h -> l for every token, before the experts
            width = moe.latent_size
            rows = tape.linear(Weight("moe_latent_proj", shape.hidden, width, bias=shape.linear_bias), x)
        expert = Weight(
            "moe_routed_experts",
            width,
            moe.ffn_hidden_size,
            bias=shape.linear_bias,
            copies=moe.count,
            unit=EXPERT_ROW,
        )
        y = _feed_forward(tape, expert, rows) or y
        if moe.latent_size is not None:
            # fc2_latent_proj: l -> h, of the sum of the experts' outputs
            y = tape.linear(Weight("moe_latent_proj", width, shape.hidden, bias=shape.linear_bias), y)
        return _shared_experts(tape, x) or y


def _router(tape: Tape, experts: int, x: bool) -> bool:
    # TopKRouter: h -> E, a score for every expert. RouterGatingLinearFunction computes both of its gradients
    # or none.
    flows = x or tape.trained
    tape.parameters += tape.shape.hidden * experts
    flops = 2 * tape.shape.hidden * experts
    tape.add("moe_router", TOKEN, fwd=flops, bwd=2 * flops * flows)
    return flows


def _shared_experts(tape: Tape, x: bool) -> bool:
    shape, moe = tape.shape, tape.shape.experts
    if moe is None or not moe.shared_ffn_hidden_size:
        return False
    with tape.recomputed("shared_experts"):
        y = _feed_forward(tape, Weight("moe_shared_experts", shape.hidden, moe.shared_ffn_hidden_size), x)
        if moe.shared_gate:
            # gate_weight: h -> 1
            y = tape.linear(Weight("moe_shared_expert_gate", shape.hidden, 1), x) or y
        return y


def dense_or_mixture(tape: Tape, layer: int, x: bool) -> bool:
    """A mixture or a dense block, as moe_layer_freq says for this layer."""
    return mixture(tape, layer, x) if tape.shape.is_moe(layer) else dense_mlp(tape, layer, x)


def decoder(tape: Tape, attention: Block, feed_forward: Block) -> None:
    """A decoder-only `GPTModel`: embedding, `TransformerBlock`, multi-token prediction, output layer."""
    shape = tape.shape
    tape.parameters += shape.hidden * (shape.vocab + shape.learned_positions)
    embedded = x = tape.is_trained("embedding")
    for layer, repeated in enumerate(shape.recompute.full_layers or (False,) * shape.layers):
        with tape.layer(f"layers.{layer}", repeated=repeated):
            x = _transformer_layer(tape, layer, x, attention, feed_forward)
    further = x = tape.norm(x, shape.hidden)
    for depth in range(shape.mtp_layers):
        block = partial(
            _transformer_layer, tape, shape.layers + depth, attention=attention, feed_forward=feed_forward
        )
        further = _predict_further(tape, embedded, further, block)
    tape.parameters += 0 if shape.tied_embeddings else shape.hidden * shape.vocab
    _logits(tape, "", x)


def _transformer_layer(tape: Tape, layer: int, x: bool, attention: Block, feed_forward: Block) -> bool:
    # TransformerLayer: input_layernorm, self_attention, + ; pre_mlp_layernorm, mlp, +
    x = attention(tape, layer, tape.norm(x, tape.shape.hidden)) or x
    return feed_forward(tape, layer, tape.norm(x, tape.shape.hidden)) or x


def _predict_further(tape: Tape, embedded: bool, x: bool, layer: Callable[[bool], bool]) -> bool:
    """One depth of multi-token prediction (arXiv:2412.19437), and its pass through the output layer."""
    shape = tape.shape
    with tape.layer("mtp", "mtp_", repeated=shape.recompute.full_mtp):
        # eh_proj: the next token's embedding beside the hidden state, 2 h -> h
        pair = tape.norm(embedded, shape.hidden) | tape.norm(x, shape.hidden)
        y = tape.linear(Weight("eh_proj", 2 * shape.hidden, shape.hidden), pair)
        y = tape.norm(layer(y), shape.hidden)
    _logits(tape, "mtp_", y)
    return y


def _logits(tape: Tape, prefix: str, x: bool) -> None:
    # output_layer: h -> V, tied to the embedding or not; never recomputed. `decoder` counts its parameters.
    shape = tape.shape
    flops = 2 * shape.hidden * shape.vocab
    trained = tape.is_trained("embedding" if shape.tied_embeddings else "output_layer")
    tape.add(prefix + "logits", TOKEN, fwd=flops, bwd=flops * (x + trained))
