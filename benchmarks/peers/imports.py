"""Reaches one module of a large package without what its other modules need (GPU kernels, Ray, Transformer
Engine).
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def bare_package(name: str) -> None:
    """Makes a package importable without running its `__init__`; its modules are still found in its
    directory.

    Raises ModuleNotFoundError where it is not installed.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"no package {name}", name=name)
    package = ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules[name] = package


class StandIn(ModuleType):
    """A module whose every attribute is an empty class: enough to be imported, annotated with and asked for
    by isinstance.
    """

    __path__ = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class StandIns:
    """Import finder that answers for these modules, and those below them, with stand-ins."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def install(self) -> None:
        """Goes before every other finder."""
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if any(name == own or name.startswith(own + ".") for own in self._names):
            return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""
