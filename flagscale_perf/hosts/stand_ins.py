"""Stand-ins for what Megatron-LM's main branch always imports and a machine that only rehearses may lack:
Triton, and `typing.override`, which Python has since 3.12.

A training on the CPU uses neither: Triton's kernels are for a GPU, and `override` is a mark for type
checkers. A stand-in is there only while a module that imports it so is imported; code that asks later whether
Triton is installed learns that it is not.
"""

from __future__ import annotations

import importlib.util
import sys
import typing
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

KERNELS = (
    "megatron.core.ssm.ops.common.causal_conv1d_varlen",
    "megatron.core.ssm.ops.mamba2.batch_invariant_decode",
    "megatron.core.transformer.moe.ops.paged_stash",
)
MODELS = "megatron.training.models"


class Kernel:
    """The result of `triton.jit` here: it has the function's name and cannot be launched."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = function.__name__

    def __getitem__(self, _grid: object) -> NoReturn:
        raise RuntimeError(
            f"{self._name} is a Triton kernel: it needs a GPU and triton, and this rehearsal has neither;"
            " leave out the option that asks for it"
        )


class StandIns:
    """Lends what is missing to one module at a time."""

    def __init__(self) -> None:
        self._triton_for: str | None = None

    def lend(self, module: str) -> None:
        """Called before the import of `module`: puts in what it needs and the machine lacks."""
        if module in KERNELS and "triton" not in sys.modules and importlib.util.find_spec("triton") is None:
            triton = _triton()
            sys.modules.update({"triton": triton, "triton.language": triton.language})
            self._triton_for = module
        if module == MODELS and not hasattr(typing, "override"):
            vars(typing)["override"] = _override

    def take_back(self, module: ModuleType) -> None:
        """Called after the import of `module`: takes out what was lent to it."""
        if module.__name__ == self._triton_for:
            del sys.modules["triton"], sys.modules["triton.language"]
            self._triton_for = None
        if module.__name__ == MODELS and getattr(typing, "override", None) is _override:
            del vars(typing)["override"]


def _triton() -> Any:
    """A module with the names of Triton that kernels' definitions use."""
    triton: Any = ModuleType("triton")
    triton.__version__ = "0.0.0"
    triton.jit = Kernel
    triton.autotune = lambda **_: lambda kernel: kernel
    triton.Config = lambda kwargs, **more: SimpleNamespace(kwargs=kwargs, **more)
    triton.language = ModuleType("triton.language")
    triton.language.constexpr = triton.language.int64 = int
    return triton


def _override(method: Any) -> Any:
    return method
