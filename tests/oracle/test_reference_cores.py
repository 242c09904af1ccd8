"""Both forms of the cores are what transformers computes, value by value and gradient by gradient."""

from __future__ import annotations

import importlib

import pytest
import torch

from tests.oracle import reference_cores

LENGTH = 21


@pytest.fixture(autouse=True)
def _inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers' code of these models makes torch set this variable."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")


def rule(channels: bool) -> dict[str, torch.Tensor]:
    """q, k, v, decay and beta of 2 sequences, 2 key heads of width 8 and 4 value heads of width 12."""
    keys = 4 if channels else 2
    made = {name: torch.randn(2, LENGTH, keys, 8) for name in ("query", "key")}
    decay = (2, LENGTH, 4, 8) if channels else (2, LENGTH, 4)
    return made | {
        "value": torch.randn(2, LENGTH, 4, 12),
        "g": -torch.rand(decay) / 4,
        "beta": torch.rand(2, LENGTH, 4),
    }


def same(ours, theirs, inputs) -> None:
    for each in inputs:
        each.requires_grad_(True)
    results = [ours(*inputs), theirs(*inputs)]
    weights = torch.randn_like(results[0])
    gradients = [torch.autograd.grad((made * weights).sum(), inputs) for made in results]
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("form", ["recurrent", "chunked"])
@pytest.mark.parametrize("kind", ["qwen3_next", "kimi_linear"])
def test_the_delta_rule(kind: str, form: str) -> None:
    torch.manual_seed(1)
    module = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    original = getattr(module, reference_cores.CORES[kind][1])
    more = {"chunk_size": 8, "use_qk_l2norm_in_kernel": True}

    def ours(*given):
        return reference_cores.delta(None, form, *given, **more)

    same(ours, lambda *given: original(*given, **more)[0], list(rule(kind == "kimi_linear").values()))


@pytest.mark.parametrize("form", ["recurrent", "chunked"])
def test_the_scan(form: str) -> None:
    torch.manual_seed(1)
    module = importlib.import_module("transformers.models.nemotron_h.modeling_nemotron_h")
    sizes = {"x": (2, LENGTH, 4, 8), "dt": (2, LENGTH, 4), "b": (2, LENGTH, 2, 12), "c": (2, LENGTH, 2, 12)}
    x, dt, b, c = (torch.randn(size) for size in sizes.values())
    more = {
        "chunk_size": 8,
        "D": torch.randn(4),
        "dt_bias": torch.randn(4),
        "dt_softplus": True,
        "dt_limit": (0.0, float("inf")),
    }
    decay = -torch.rand(4)

    def ours(*given):
        return reference_cores.scan(None, form, *given, **more)

    same(ours, lambda *given: module.mamba2_chunk_scan(*given, **more), [x, dt, decay, b, c])
