"""Stand-ins for what Megatron-LM always imports and a machine that only rehearses may lack: Triton, and
`typing.override`, which Python has since 3.12.

A training on the CPU uses neither: Triton's kernels are for a GPU, and `override` is a mark for type
checkers. Triton stands in for any module of Megatron-Core that cannot be imported without it, and only while
that module is imported: where an importer catches the error, it learns that Triton is not installed, and so
does code that asks later.
"""

from __future__ import annotations

import ast
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

from flagscale_perf.hosts.import_hook import found_by_others
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.sources import tree_of

CORE = "megatron.core."
TRITON = "triton"
IMPORT_ERRORS = {"ImportError", "ModuleNotFoundError"}
ANY_ERROR = {"Exception", "BaseException"}


class Kernel:
    """The result of `triton.jit` here: it has the function's name and cannot be launched."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = function.__name__

    def __getitem__(self, _grid: object) -> NoReturn:
        raise RuntimeError(
            f"{self._name} is a Triton kernel: it needs a GPU and triton, and this rehearsal has neither;"
            " leave out the option that asks for it"
        )


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds Triton, and its submodules, for a module of Megatron-Core that asks for it unconditionally."""

    def install(self, patches: Patches) -> None:
        """Puts in, until `patches` are undone, what this machine lacks."""
        if not hasattr(typing, "override"):
            patches.set(typing, "override", _override)
        if TRITON not in sys.modules and importlib.util.find_spec(TRITON) is None:
            sys.meta_path.insert(0, self)
            patches.undone(lambda: sys.meta_path.remove(self))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The finder's protocol."""
        if fullname.startswith(CORE):
            return found_by_others(self, (fullname, path, target), self._apart)
        if fullname.partition(".")[0] == TRITON and _is_indispensable(sys._getframe(1)):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """A module that has every name of Triton."""
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""
        vars(module)["__version__"] = "0.0.0"

    @staticmethod
    def _apart(_: ModuleType, execute: Callable[[], None]) -> None:
        """Runs one module of Megatron-Core: it sees no stand-in of an importer, and leaves none behind."""
        of_importer = _take_back()
        try:
            execute()
        finally:
            _take_back()
            sys.modules.update(of_importer)


class _StandIn(ModuleType):
    """Has every name, each of which decorates, configures, or marks a type."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        match args:
            case (Kernel(),) if not kwargs:
                return args[0]
            case (function,) if not kwargs and callable(function) and hasattr(function, "__name__"):
                return Kernel(function)
        return self


def _take_back() -> dict[str, ModuleType]:
    names = [name for name in list(sys.modules) if name.startswith(TRITON)]
    lent = {name: sys.modules[name] for name in names if type(sys.modules[name]) is _StandIn}
    for name in lent:
        del sys.modules[name]
    return lent


def _is_indispensable(frame: FrameType | None) -> bool:
    """Whether a module of Megatron-Core asks, while it is imported, and no importer would catch the error.

    `frame`: the one from which the import system was called. Importers are the modules whose import is under
    way, and the function that began it.
    """
    asks, is_importing = None, False
    while frame is not None:
        name, code = str(frame.f_globals.get("__name__")), frame.f_code
        if not _is_machinery(name, code.co_filename):
            asks = asks or name
            caught = IMPORT_ERRORS | ANY_ERROR if name.startswith("megatron.") else IMPORT_ERRORS
            if not asks.startswith(CORE) or _is_guarded(code.co_filename, frame.f_lineno, caught):
                return False
            if code.co_name == "<module>":
                is_importing = is_importing or name == asks
            elif is_importing:
                return True
        frame = frame.f_back
    return is_importing


def _is_machinery(name: str, file: str) -> bool:
    is_ours = name in (__name__, found_by_others.__module__)
    return is_ours or name == "importlib" or file.startswith("<frozen importlib._")


def _is_guarded(file: str, line: int, errors: set[str]) -> bool:
    return any(first <= line <= last and caught & errors for first, last, caught in _guarded_lines(file))


@functools.cache
def _guarded_lines(file: str) -> list[tuple[int, int, set[str]]]:
    """Of each `try` and `contextlib.suppress`: first and last line of what it guards, and which errors."""
    try:
        nodes = list(ast.walk(tree_of(Path(file))))
    except (OSError, ValueError, SyntaxError):
        return []
    guarded = []
    for node in nodes:
        caught: set[str] = set()
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                caught |= ANY_ERROR if handler.type is None else _names(handler.type)
        elif isinstance(node, ast.With):
            caught = {name for item in node.items for name in _names(item.context_expr)}
        else:
            continue
        guarded.append((node.body[0].lineno, node.body[-1].end_lineno or 0, caught))
    return guarded


def _names(node: ast.AST) -> set[str]:
    return {
        each.id if isinstance(each, ast.Name) else each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Name | ast.Attribute)
    }


def _override(method: Any) -> Any:
    method.__override__ = True  # as Python's own
    return method
