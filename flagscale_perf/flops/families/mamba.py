"""Mamba-2. H heads of width P, d = H P, state N, G groups."""

from __future__ import annotations

from flagscale_perf.flops.sizes import Mamba
from flagscale_perf.flops.tape import Core, Tape, Weight, needed


def mamba(tape: Tape, layer: int, x: bool) -> bool:
    """A Mamba-2 layer (arXiv:2405.21060): `MambaMixer`."""
    h = tape.shape.hidden
    sizes = needed(tape.shape.mamba, "Mamba's sizes; give mamba_state_dim and mamba_head_dim")
    channels = sizes.inner + 2 * sizes.groups * sizes.state
    # in_proj: h -> d + (d + 2 G N) + H: gate z, then x, B and C, then dt
    wide = Weight("mamba.in_proj", h, sizes.inner + channels + sizes.heads, "in_proj", sizes.in_bias)
    y = tape.linear(wide, x)
    y = tape.conv("mamba.conv1d", channels, sizes.conv, y)
    tape.parameters += channels * sizes.conv_bias + 3 * sizes.heads  # A, D and the bias of dt
    y = tape.core("mamba.core", _core(sizes, h), y)
    # the gated norm has no bias
    tape.parameters += sizes.inner
    return tape.linear(
        Weight("mamba.out_proj", sizes.inner, h, "out_proj", sizes.out_bias), y or tape.trained
    )


def _core(sizes: Mamba, hidden: int) -> Core:
    # x B^T into the state and h C out of it; chunk by chunk C B^T (of a group), its product with x, and both
    # again for the states between chunks
    state = 4 * sizes.inner * sizes.state
    return Core(
        recurrent=state,
        chunked=2 * sizes.chunk * (sizes.groups * sizes.state + sizes.inner) + state,
        chunk=sizes.chunk,
        restarts=False,
        megatron=7 * 2 * hidden * sizes.state,
    )
