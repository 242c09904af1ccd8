"""Stands in for packages that Megatron-Bridge imports and that a machine without a GPU cannot have.

To be installed after the parts of Megatron-Core that try Transformer Engine: they must find that it is not
there.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any

PACKAGES = (
    *("accelerate", "comet_ml", "datasets", "diffusers", "fla", "flashinfer", "megatron.energon", "mlflow"),
    *(
        "modelopt",
        "nvidia_resiliency_ext",
        "open_clip",
        "qwen_vl_utils",
        "timm",
        "transformer_engine",
        "triton",
    ),
    "webdataset",
)


class AnyClass(type):
    """A class whose every attribute is another one, so that it can be a base, an annotation or a
    decorator.
    """

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return AnyClass(name, (), {"__init__": lambda self, *_, **__: None})


class AnyModule(types.ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Any:
        return AnyClass.__getattr__(AnyClass, name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of `PACKAGES`."""

    def find_spec(
        self, fullname: str, path: Any, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        is_ours = any(f"{fullname}.".startswith(f"{package}.") for package in PACKAGES)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if is_ours else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return AnyModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__path__ = []
        module.__version__ = "0"


def install() -> None:
    """From now on these packages can be imported."""
    sys.meta_path.append(Finder())
