"""What a host's modules import unconditionally and this Python does not have, read from their sources."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from flagscale_perf.hosts.sources import tree_of
from flagscale_perf.hosts.stand_ins import CORE, TRITON

HOSTS = ("flagscale", "megatron")  # top-level packages whose imports are followed
Locate = Callable[[str], Path | None]


@dataclass(frozen=True)
class Lack:
    """Something without which the host cannot be imported.

    Attributes:
        text: which module needs what, and what to do.
        is_lent: whether a rehearsal on the CPU stands in for it: one that takes place on this machine, in
            what `doctor.find_hosts` returns.
    """

    text: str
    is_lent: bool


def find_lacks(module: str, locate: Locate) -> list[Lack]:
    """What stops `module`, and every module of the host that it imports at its top level, outside `if` and
    `try`. `locate`: a module's file, or that of its package; None where there is none.
    """
    lacks: dict[str, Lack] = {}
    seen: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        parent = name.rpartition(".")[0]
        if name in seen or (source := locate(name)) is None:
            continue
        seen.add(name)
        todo += [parent] if parent else []
        for needed, of_it in _imports(name, source):
            if needed.partition(".")[0] in HOSTS:
                todo += [needed, *(f"{needed}.{each}" for each in of_it)]
            elif lack := _lack(name, needed, of_it, locate):
                lacks.setdefault(lack[0], lack[1])
    return list(lacks.values())


def _imports(module: str, source: Path) -> Iterator[tuple[str, list[str]]]:
    package = module if source.name == "__init__.py" else module.rpartition(".")[0]
    for node in tree_of(source).body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield name, [alias.name for alias in node.names]


def _lack(module: str, needed: str, of_it: list[str], locate: Locate) -> tuple[str, Lack] | None:
    top = needed.partition(".")[0]
    if top in sys.stdlib_module_names:
        missing = [each for each in of_it if each != "*" and not _has(needed, each)]
        what, where = (
            " and ".join(missing),
            f"{needed}, which Python {platform.python_version()} does not have",
        )
        text = f"{module} imports {what} from {where}: take a newer Python"
        return (f"{needed} {what}", Lack(text, missing == ["override"])) if missing else None
    if _is_there(top) or locate(top):
        return None
    is_lent = top == TRITON and module.startswith(CORE)
    return top, Lack(f"{module} imports {top}, which is not installed: install it", is_lent)


def _is_there(top: str) -> bool:
    try:
        return top in sys.modules or importlib.util.find_spec(top) is not None
    except ValueError:  # a module that was made by hand
        return True


def _has(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name) or bool(
            importlib.import_module(f"{module}.{name}")
        )
    except ImportError:
        return False
