"""The hosts in this Python environment and their hook points, read from their source without running it."""

from __future__ import annotations

import ast
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

from flagscale_perf.hosts import bridge, host_monitor
from flagscale_perf.hosts.core_loop import GPT_MODULE, host_name
from flagscale_perf.hosts.megatron import (
    ARGUMENTS_MODULE,
    HOOK_POINTS,
    LOOP_MODULES,
    OPTIONAL_POINTS,
    REQUIRED_POINTS,
)

OWN_LOOP = "a loop of your own, through flagscale_perf.monitor.PerfMonitor"
# What a host has of its own that measures, too, by its module: what there is to say of it.
MEASURES_ITSELF = {
    host_monitor.HOOKS_MODULE: (
        "its own performance monitor stays off beside this one; --perf-host-monitor keep runs both"
    ),
    "flagscale.runner.straggler.detector": (
        "its --enable-straggler-detection costs an all_gather for each section on the training thread;"
        " with --perf-breakdown this monitor names slow ranks without a collective"
    ),
}


@dataclass(frozen=True)
class HookPoint:
    """One function the monitor wraps.

    Attributes:
        name: `module.function`, without the module for the loop's own.
        found: whether the host has it.
        cost: what is not available without it.
        required: without it there is no monitor.
    """

    name: str
    found: bool
    cost: str
    required: bool = False


@dataclass(frozen=True)
class Host:
    """One training host found.

    Attributes:
        name: with its version.
        loop: the module its training loop runs in.
        source: that module's file.
        points: the hook points, found or not.
        remarks: what there is to say of what it has of its own that measures, too.
    """

    name: str
    loop: str
    source: Path
    points: tuple[HookPoint, ...]
    remarks: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        """Whether the monitor can be switched on here."""
        return all(point.found for point in self.points if point.required)


def find_hosts() -> list[Host]:
    """Every host that a run would import: known loops first, then loops of one's own.

    What is on `sys.path` goes before an installed FlagScale.
    """
    roots = [*(Path(entry or ".") for entry in sys.path), *_flagscale_roots()]
    remarks = tuple(text for module, text in MEASURES_ITSELF.items() if _locate(module, roots))
    hosts = []
    for module in LOOP_MODULES:
        source = _locate(module, roots)
        if source is not None:
            name = host_name(source.resolve(), _core_version(roots))
            points = tuple(_points(module, source, roots))
            hosts.append(Host(name, module, source.resolve(), points, remarks))
    return [*hosts, *_bridge(roots), *_plain_core(roots)]


def _bridge(roots: list[Path]) -> list[Host]:
    pretrain = _locate(bridge.PRETRAIN_MODULE, roots)
    loop = _locate(bridge.LOOP_MODULE, roots)
    if pretrain is None or loop is None:
        return []
    of_pretrain, of_loop = _global_names(pretrain), _global_names(loop)
    points = [
        HookPoint(f"pretrain.{name}", name in of_pretrain, cost, required=True)
        for name, cost in bridge.PRETRAIN_POINTS.items()
    ]
    points += [HookPoint(f"train.{name}", name in of_loop, cost) for name, cost in bridge.LOOP_POINTS.items()]
    version = _assigned_version(pretrain.parents[1] / "package_info.py")
    return [Host(f"Megatron-Bridge {version}", bridge.LOOP_MODULE, loop.resolve(), tuple(points))]


def _plain_core(roots: list[Path]) -> list[Host]:
    source = _locate(GPT_MODULE, roots)
    if source is None:
        return []
    point = HookPoint(f"{GPT_MODULE}.GPTModel", "GPTModel" in _global_names(source), "TFLOPS and MFU")
    version = _assigned_version(source.parents[2] / "package_info.py")
    return [Host(f"Megatron-Core {version}", OWN_LOOP, source.resolve(), (point,))]


def _flagscale_roots() -> list[Path]:
    spec = importlib.util.find_spec("flag_scale")
    if spec is None or not spec.submodule_search_locations:
        return []
    root = Path(next(iter(spec.submodule_search_locations)))
    return [root, root / "third_party" / "Megatron-LM"]


def _locate(module: str, roots: list[Path]) -> Path | None:
    package, *rest = module.split(".")
    for root in roots:
        source = root.joinpath(package, *rest).with_suffix(".py")
        if source.is_file():
            return source
        if package == "flagscale" and (root / package / "__init__.py").is_file():
            break  # a tree hides what is behind it; Megatron's package spreads over several
    return None


def _core_version(roots: list[Path]) -> str:
    info = _locate("megatron.core.package_info", roots)
    return "unknown" if info is None else _assigned_version(info)


def _assigned_version(info: Path) -> str:
    numbers = _assigned(info) if info.is_file() else {}
    return ".".join(str(numbers.get(part, "?")) for part in ("MAJOR", "MINOR", "PATCH"))


def _points(loop: str, source: Path, roots: list[Path]) -> list[HookPoint]:
    names = _global_names(source)
    own = loop.startswith("flagscale.")
    points = [
        HookPoint(name, name in names, cost, name in REQUIRED_POINTS)
        for name, cost in HOOK_POINTS.items()
        if name in names or own or name not in OPTIONAL_POINTS
    ]
    arguments = _locate(ARGUMENTS_MODULE, roots)
    found = arguments is not None and {"add_megatron_arguments", "parse_args"} <= _global_names(arguments)
    name, cost = (
        f"{ARGUMENTS_MODULE}.add_megatron_arguments",
        "the flags (the environment variables still work)",
    )
    return [*points, HookPoint(name, found, cost)]


def _global_names(source: Path) -> set[str]:
    """Names a module binds at its top level by def, class or import, also inside try and if."""
    names: set[str] = set()
    todo: list[ast.AST] = [ast.parse(source.read_text(encoding="utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        else:
            todo += ast.iter_child_nodes(node)
    return names


def _assigned(source: Path) -> dict[str, object]:
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
