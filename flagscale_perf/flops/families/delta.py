"""Delta-rule layers: the gated delta net, the gated delta product and Kimi delta attention."""

from __future__ import annotations

from flagscale_perf.flops.tape import Core, Tape, Weight, needed


def gated_delta_net(tape: Tape, layer: int, x: bool) -> bool:
    """A gated delta net (arXiv:2412.06464): `GatedDeltaNet`. H_k, H_v heads of width d_k, d_v."""
    h = tape.shape.hidden
    arguments = "linear_num_key_heads, linear_num_value_heads, linear_key_head_dim and linear_value_head_dim"
    sizes = needed(tape.shape.delta, f"{arguments}; give them")
    keys, values = sizes.key_heads * sizes.key_dim, sizes.value_heads * sizes.value_dim
    # in_proj: h -> q, k, v, gate z, and beta and alpha of each value head
    wide = 2 * keys + 2 * values + 2 * sizes.value_heads
    if sizes.second:
        # q, k, v, z; f and b for each channel of the keys, w for each of the values
        wide = 4 * keys + 3 * values
    y = tape.linear(Weight("gdn.in_proj", h, wide), x)
    y = tape.conv("gdn.conv1d", 2 * keys + values, sizes.conv, y)
    core = delta_rule((sizes.value_heads, sizes.key_dim, sizes.value_dim), sizes.chunk)
    y = tape.core("gdn.core", core._replace(megatron=8 * values * sizes.value_dim), y)
    tape.parameters += 2 * sizes.value_heads + sizes.value_dim  # decay, its bias, the gated norm
    return tape.linear(Weight("gdn.out_proj", values, h), y or tape.trained)


def gated_delta_product(tape: Tape, layer: int, x: bool) -> bool:
    """A Gated DeltaProduct (arXiv:2502.10297): `GatedDeltaProductMixer`. H heads of width P, d = H P, state
    N, G groups; n reflections for each token, each with a key and a value of its own.
    """
    h = tape.shape.hidden
    sizes = needed(tape.shape.mamba, "mamba_num_heads, mamba_state_dim and mamba_head_dim")
    times, keys = sizes.householders, sizes.groups * sizes.state
    channels = times * (sizes.inner + keys) + keys
    with tape.recomputed("gdp_in_proj"):
        # in_proj: h -> gate z; V and K of each reflection, and Q; beta of each reflection, and alpha
        wide = sizes.inner + channels + sizes.heads * (times + 1)
        y = tape.linear(Weight("gdp.in_proj", h, wide), x)
    with tape.recomputed("gdp_qkv"):
        y = tape.conv("gdp.conv1d", channels, sizes.conv, y)
    tape.parameters += 2 * sizes.heads + sizes.inner  # decay, its bias, the gated norm
    # the state times k and k times the correction for each reflection, and the state times q
    state = sizes.inner * sizes.state
    core = Core(2 * (2 * times + 1) * state, None, sizes.chunk, True, (4 * times + 3) * state)
    y = tape.core("gdp.core", core, y)
    return tape.linear(Weight("gdp.out_proj", sizes.inner, h), y or tape.trained)


def kimi_delta(tape: Tape, layer: int, x: bool) -> bool:
    """Kimi delta attention (arXiv:2510.26692), by the names of Kimi's own modules. n heads of width d."""
    h = tape.shape.hidden
    sizes = needed(tape.shape.kda, "linear_num_heads and linear_head_dim; give them")
    width = sizes.heads * sizes.head_dim
    # q, k, v: h -> n d each, convolved
    q, k, v = (tape.linear(Weight(f"kda.{name}_proj", h, width), x) for name in "qkv")
    y = tape.conv("kda.conv1d", 3 * width, sizes.conv, q or k or v)
    # the forget gate, h -> d -> n d; beta, h -> n
    forget = tape.linear(Weight("kda.f_a_proj", h, sizes.head_dim), x)
    y |= tape.linear(Weight("kda.f_b_proj", sizes.head_dim, width), forget)
    y |= tape.linear(Weight("kda.b_proj", h, sizes.heads), x)
    tape.parameters += width + sizes.heads  # the gate's bias and decay
    y = tape.core("kda.core", delta_rule((sizes.heads, sizes.head_dim, sizes.head_dim), sizes.chunk), y)
    # the output gate, h -> d -> n d
    gate = tape.linear(Weight("kda.g_a_proj", h, sizes.head_dim), x)
    y |= tape.linear(Weight("kda.g_b_proj", sizes.head_dim, width), gate)
    tape.parameters += sizes.head_dim  # the gated norm
    return tape.linear(Weight("kda.o_proj", width, h), y)


def delta_rule(sizes: tuple[int, int, int], chunk: int) -> Core:
    """The products of the delta rule for heads with keys and values of these widths.

    Token by token: the state times k, k times the correction into the state, the state times q. Chunk by
    chunk: K K^T, Q K^T, the inverse times [V K], the scores times the corrections; and three products with
    the state. The inverse itself is no product.
    """
    heads, key, value = sizes
    state = 6 * heads * key * value
    return Core(
        recurrent=state,
        chunked=2 * heads * chunk * (3 * key + 2 * value) + state,
        chunk=chunk,
        restarts=True,
        megatron=None,
    )
