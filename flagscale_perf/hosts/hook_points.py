"""Hook points: what is wrapped of a loop, wherever a host has it, and what is lost where it has it nowhere.

A loop has its parts in one of four places: among the globals of its module; in another module, from which one
of its functions imports them when it is called; in a module that it has by name; as methods of what its
`train` is given. The first is looked into, the others are read from the loop's source.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from flagscale_perf.hosts.patching import Patches, Wrapper
from flagscale_perf.hosts.sources import names_of, tree_of

HERE = "."


@dataclass(frozen=True)
class Point:
    """One thing to wrap.

    Attributes:
        cost: what is lost without it.
        also: its names in other versions of the host.
        option: the host's argument without which it is never called; None: it always may be.
    """

    cost: str
    also: tuple[str, ...] = ()
    option: str | None = None


@dataclass(frozen=True)
class Source:
    """What the source of a loop says of its parts.

    Attributes:
        names: what the module binds at its top level, also inside `if` and `try`.
        parameters: of its `train`.
        places: name -> (owner, name there) for each place that its code takes it from. The owner is HERE for
            a global, what may be a module, or a parameter of `train`.
        text: of the file.
    """

    names: frozenset[str]
    parameters: frozenset[str]
    places: Mapping[str, list[tuple[str, str]]]
    text: str

    def find(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """The places of what goes by any of these names, each once."""
        return list(dict.fromkeys(place for name in names for place in self.places.get(name, ())))


@dataclass(frozen=True)
class HookPoint:
    """One function the monitor wraps.

    Attributes:
        name: `module.function`, without the module for the loop's own: where it is, or was looked for.
        found: whether the host has it.
        cost: what is not available without it.
        required: without it there is no monitor.
    """

    name: str
    found: bool
    cost: str
    required: bool = False


def members_of(file: Path) -> set[str]:
    """Functions of a module, names it imports from elsewhere, and `class.method`. Raises OSError, ValueError,
    SyntaxError.
    """
    found: set[str] = set()
    for node in tree_of(file).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return found


@functools.lru_cache(maxsize=16)
def source_of(file: Path, package: str) -> Source:
    """Reads a module of `package`. Raises OSError, ValueError, SyntaxError."""
    nodes = list(ast.walk(tree_of(file)))
    names = names_of(file)
    parameters = _parameters_of_train(nodes)
    places = {name: [(HERE, name)] for name in names}
    modules = _take_imports(nodes, package, names, places)
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner, name = ast.unparse(node.func.value), node.func.attr
            owner = owner if owner in parameters else modules.get(owner, owner)
            places.setdefault(name, []).append((owner, name))
    return Source(names, parameters, places, file.read_text(encoding="utf-8"))


def _parameters_of_train(nodes: Iterable[ast.AST]) -> frozenset[str]:
    trains = [node.args for node in nodes if isinstance(node, ast.FunctionDef) and node.name == "train"]
    return frozenset(each.arg for args in trains for each in ast.walk(args) if isinstance(each, ast.arg))


def _take_imports(
    nodes: Iterable[ast.AST], package: str, names: frozenset[str], places: dict[str, list[tuple[str, str]]]
) -> dict[str, str]:
    """Adds to `places` what is imported from a module; returns what may be one, by the name that an import
    binds, anywhere in the file.
    """
    modules: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom):
            module = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                bound = alias.asname or alias.name
                modules[bound] = f"{module}.{alias.name}"
                place = (HERE, bound) if bound in names else (module, alias.name)
                places.setdefault(alias.name, []).append(place)
    return modules


def places(loop: ModuleType, point: tuple[str, Point], given: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """The owners of a point, a module or an object each, and its name there. [] where there is none.

    Args:
        loop: the module of the loop.
        point: its name, and what is known of it.
        given: the arguments of its `train`, by name.
    """
    names = (point[0], *point[1].also)
    if found := [(loop, name) for name in names if hasattr(loop, name)]:
        return found
    package = loop.__package__ or ""
    try:
        source = source_of(Path(getattr(loop, "__file__", None) or ""), package)
    except (OSError, ValueError, SyntaxError):  # a module whose source cannot be read
        return []
    owners = [(_owner(loop, owner, given), name) for owner, name in source.find(names)]
    return [(owner, name) for owner, name in owners if hasattr(owner, name)]


def _owner(loop: ModuleType, place: str, given: Mapping[str, Any]) -> Any:
    if place == HERE:
        return loop
    if place in given:
        return given[place]
    if place.partition(".")[0] == loop.__name__.partition(".")[0]:
        with contextlib.suppress(Exception):  # the host imports it itself, when it first calls it
            importlib.import_module(place)
    return sys.modules.get(place)


def missing(
    loop: ModuleType, points: Mapping[str, Point], given: Mapping[str, Any], options: Mapping[str, Any]
) -> list[str]:
    """What is lost in this training. `options`: the host's arguments."""
    return [
        point.cost
        for name, point in points.items()
        if (point.option is None or options.get(point.option)) and not places(loop, (name, point), given)
    ]


def wrap(
    host: tuple[ModuleType, Mapping[str, Point]],
    wrappers: Mapping[str, Wrapper],
    given: Mapping[str, Any],
    patches: Patches,
) -> None:
    """Wraps each point where it is; one that is nowhere is passed over. `host`: the loop and its points."""
    loop, points = host
    for name, wrapper in wrappers.items():
        for owner, found in places(loop, (name, points[name]), given):
            patches.wrap(owner if hasattr(owner, "__dict__") else type(owner), {found: wrapper})


def given_to(train: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call of a loop's `train`, by name; what cannot be told apart is left out."""
    try:
        return dict(inspect.signature(train).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):  # a call that will fail, or a function without a signature
        return kwargs
