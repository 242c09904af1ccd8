"""Stands in for `mamba_ssm`, `causal_conv1d` and `fla`, whose kernels exist for GPUs only: a training imports
these names and runs the reference code of `reference_cores`, values and gradients the kernels' own.

Where the process counts its products, each of these parts counts under its component.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.oracle import reference_cores
from tests.oracle.products import Counter

# Which form of the core runs; and what counts, once there is a model.
form = "recurrent"
counter: Counter | None = None


class GatedNorm(torch.nn.Module):
    """`mamba_ssm`'s RMSNorm of groups, after the gate."""

    def __init__(self, width: int, eps: float, group_size: int, norm_before_gate: bool, **place: Any) -> None:
        super().__init__()
        assert not norm_before_gate
        self.weight = torch.nn.Parameter(torch.ones(width, **place))
        self.eps, self.group_size = eps, group_size

    def forward(self, x: Tensor, z: Tensor | None = None) -> Tensor:
        """`z` is the gate."""
        gated = x if z is None else x * F.silu(z)
        groups = gated.unflatten(-1, (-1, self.group_size))
        return F.rms_norm(groups, (self.group_size,), eps=self.eps).flatten(-2) * self.weight


def _counted(component: str, given: tuple[Any, ...], made: Any) -> Any:
    """What `made` returns, its products counted under the component."""
    if counter is None:
        return made()
    with counter.part(component, *(each for each in given if isinstance(each, Tensor))) as results:
        results.append(made())
    return results[0]


def _convolved(component: str, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """One number out for each that goes in, from it and those before."""
    assert activation == "silu"

    def made() -> Tensor:
        padded = F.pad(x, (weight.shape[-1] - 1, 0))
        return F.conv1d(padded, weight.unsqueeze(1), bias, groups=x.shape[1])

    return F.silu(_counted(component, (x,), made))


def mamba_split_conv1d_scan_combined(
    zxbcdt: Tensor, weight: Tensor, bias: Tensor, dt_bias: Tensor, decay: Tensor, **more: Any
) -> Tensor:
    """One kernel for all between a mixer's two projections: convolution, scan and gate."""
    heads, width, groups = len(decay), more["headdim"], more["ngroups"]
    inner, state = heads * width, (zxbcdt.shape[-1] - heads - 2 * heads * width) // (2 * groups)
    z, xbc, dt = zxbcdt.split([inner, inner + 2 * groups * state, heads], -1)
    convolved = _convolved("mamba.conv1d", xbc.transpose(1, 2), weight, bias, more["activation"]).transpose(
        1, 2
    )
    x, b, c = convolved.split([inner, groups * state, groups * state], -1)
    given = (
        x.unflatten(-1, (heads, width)),
        dt,
        decay,
        *(each.unflatten(-1, (groups, -1)) for each in (b, c)),
    )
    rest = {"dt_bias": dt_bias, "D": more["D"], "dt_limit": (0.0, float("inf"))}
    core = functools.partial(reference_cores.scan, None, form, *given, chunk_size=more["chunk_size"], **rest)
    return _counted("mamba.core", given, core).flatten(-2) * F.silu(z)


def chunk_gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, **more: Any
) -> tuple[Tensor, None]:
    """As `GatedDeltaNet` calls it: normed and repeated before, and without first and last state."""
    assert more["initial_state"] is None and not more["output_final_state"]
    given = (q, k, v, g, beta)
    core = functools.partial(reference_cores.delta, counter, form, *given)
    return _counted("gdn.core", given, core).to(v.dtype), None


def l2norm(x: Tensor) -> Tensor:
    """`fla`'s norm of each head."""
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def install() -> None:
    """From now on these packages can be imported, as far as Megatron's layers import them."""
    scans = "mamba_ssm.ops.triton.ssd_combined"
    names: dict[str, dict[str, Any]] = {
        scans: {
            "mamba_chunk_scan_combined": None,  # of inference only
            "mamba_split_conv1d_scan_combined": mamba_split_conv1d_scan_combined,
        },
        "mamba_ssm.ops.triton.layernorm_gated": {"RMSNorm": GatedNorm},
        "mamba_ssm.ops.triton.selective_state_update": {"selective_state_update": None},
        "causal_conv1d": {
            "causal_conv1d_fn": functools.partial(_convolved, "gdn.conv1d"),
            "causal_conv1d_update": None,  # of inference only
        },
        "fla.modules.l2norm": {"l2norm": l2norm},
        "fla.ops.gated_delta_rule": {"chunk_gated_delta_rule": chunk_gated_delta_rule},
    }
    for name, content in names.items():
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            module = sys.modules.setdefault(".".join(parts[:depth]), ModuleType(".".join(parts[:depth])))
            module.__path__ = []
        vars(module).update(content)
