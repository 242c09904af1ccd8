"""Feed-forward blocks, dense and mixtures of experts. f = inner width, E = experts, l = latent width."""

from __future__ import annotations

from flagscale_perf.flops.tape import Tape, Weight, needed
from flagscale_perf.flops.units import EXPERT_ROW, TOKEN


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
    shape = tape.shape
    moe = needed(shape.experts, "experts; give num_experts and moe_router_topk")
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
    # or none. A model with a tower and experts is transformers', whose router is a linear layer as any other.
    if tape.shape.vision is not None:
        return tape.linear(Weight("moe_router", tape.shape.hidden, experts), x)
    flows = x or tape.trained
    tape.parameters += (tape.shape.hidden + tape.shape.linear_bias) * experts
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
