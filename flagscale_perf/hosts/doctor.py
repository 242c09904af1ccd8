"""The hosts in this Python environment and their hook points, read from their source without running it."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flagscale_perf.hosts import bridge, host_monitor, rehearsal
from flagscale_perf.hosts.asked import rehearsal_mode
from flagscale_perf.hosts.core_loop import GPT_MODULE, commit_of, flagscale_root, host_name
from flagscale_perf.hosts.hook_points import HERE, HookPoint, Point, Source, members_of, source_of
from flagscale_perf.hosts.importable import Lack, find_lacks
from flagscale_perf.hosts.megatron import ARGUMENTS_MODULE, HOOK_POINTS, LOOP_MODULES, REQUIRED_POINTS
from flagscale_perf.hosts.sources import tree_of
from flagscale_perf.hosts.wrappers import CORE_PHASES, cost_of_phase

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
class Host:
    """One training host found.

    Attributes:
        name: with its version.
        loop: the module its training loop runs in.
        source: that module's file.
        points: the hook points, found or not.
        remarks: what there is to say of what it has of its own that measures, too.
        lacks: what it needs for its import and this Python does not have.
        commit: that of its tree, seven digits; None where that is no checkout.
    """

    name: str
    loop: str
    source: Path
    points: tuple[HookPoint, ...]
    remarks: tuple[str, ...] = ()
    lacks: tuple[Lack, ...] = ()
    commit: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether the monitor can be switched on here, once the host can be imported."""
        return all(point.found for point in self.points if point.required)

    @property
    def works(self) -> bool:
        """Whether the monitor can be switched on here, if in a rehearsal on the CPU."""
        return self.is_known and all(lack.is_lent for lack in self.lacks)


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
            hosts.append(replace(_host(name, (module, source), points, roots), remarks=remarks))
    return [*hosts, *_bridge(roots), *_plain_core(roots)]


def _host(
    name: str,
    loop: tuple[str, Path],
    points: tuple[HookPoint, ...],
    roots: list[Path],
    imported: str | None = None,
) -> Host:
    module, source = loop
    lacks = find_lacks(imported or module, lambda each: _locate(each, roots))
    if any(lack.is_lent for lack in lacks) and not _rehearses():
        lacks = [replace(lack, is_lent=False) for lack in lacks]
    top = source.resolve().parents[len((imported or module).split(".")) - 1]
    root = flagscale_root(source.resolve()) or (top.parent if top.name == "src" else top)
    return Host(name, module, source.resolve(), points, (), tuple(lacks), commit_of(root))


def _rehearses() -> bool:
    try:
        return rehearsal.is_due(rehearsal_mode((), os.environ))
    except (ImportError, OSError):  # without torch there is nothing to rehearse either
        return False


def _bridge(roots: list[Path]) -> list[Host]:
    pretrain = _locate(bridge.PRETRAIN_MODULE, roots)
    loop = _locate(bridge.LOOP_MODULE, roots)
    if pretrain is None or loop is None:
        return []
    of_pretrain = source_of(pretrain, bridge.PACKAGE).names
    points = [
        HookPoint(f"pretrain.{name}", name in of_pretrain, cost, required=True)
        for name, cost in bridge.PRETRAIN_POINTS.items()
    ]
    points += _looked_up(bridge.LOOP_MODULE, loop, bridge.LOOP_POINTS, roots)
    points += _core_phases(roots)
    remarks = tuple(text for module, text in bridge.NOT_RECORDED.items() if _locate(module, roots))
    name = f"Megatron-Bridge {_assigned_version(pretrain.parents[1] / 'package_info.py')}"
    return [replace(_host(name, (bridge.LOOP_MODULE, loop), tuple(points), roots), remarks=remarks)]


def _plain_core(roots: list[Path]) -> list[Host]:
    source = _locate(GPT_MODULE, roots)
    if source is None:
        return []
    has_model = "GPTModel" in source_of(source, GPT_MODULE.rpartition(".")[0]).names
    point = HookPoint(f"{GPT_MODULE}.GPTModel", has_model, "TFLOPS and MFU")
    version = _assigned_version(source.parents[2] / "package_info.py")
    return [_host(f"Megatron-Core {version}", (OWN_LOOP, source), (point,), roots, imported=GPT_MODULE)]


def _flagscale_roots() -> list[Path]:
    spec = importlib.util.find_spec("flag_scale")
    if spec is None or not spec.submodule_search_locations:
        return []
    root = Path(next(iter(spec.submodule_search_locations)))
    return [root, root / "third_party" / "Megatron-LM"]


def _locate(module: str, roots: list[Path]) -> Path | None:
    package, *rest = module.split(".")
    for root in roots:
        place = root.joinpath(package, *rest)
        for source in (place.with_suffix(".py"), place / "__init__.py"):
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
    points = _looked_up(loop, source, HOOK_POINTS, roots)
    arguments = _locate(ARGUMENTS_MODULE, roots)
    names = source_of(arguments, "megatron.training").names if arguments else frozenset()
    name = f"{ARGUMENTS_MODULE}.add_megatron_arguments"
    lost = "the flags (the environment variables still work)"
    found = {"add_megatron_arguments", "parse_args"} <= names
    return [*points, *_core_phases(roots), HookPoint(name, found, lost)]


def _looked_up(loop: str, file: Path, points: Mapping[str, Point], roots: list[Path]) -> list[HookPoint]:
    """The points of a loop, those aside that it has no option for."""
    source, package = source_of(file, loop.rpartition(".")[0]), loop.rpartition(".")[2]
    found = []
    for name, point in points.items():
        place = _place((name, *point.also), source, roots)
        if place or point.option is None or point.option in source.text:
            prefix = f"{package}." if points is bridge.LOOP_POINTS and "." not in (place or name) else ""
            found.append(
                HookPoint(prefix + (place or name), bool(place), point.cost, name in REQUIRED_POINTS)
            )
    return found


def _place(names: Sequence[str], source: Source, roots: list[Path]) -> str | None:
    """Where a loop has what goes by one of these names; see `hook_points.places`, which looks at run time."""
    for owner, name in source.find(names):
        if owner == HERE:
            return name
        if owner in source.parameters or _locate(owner, roots):
            return f"{owner}.{name}"
    return None


def _core_phases(roots: list[Path]) -> list[HookPoint]:
    found = []
    for module, (class_name, method, phase) in CORE_PHASES.items():
        file = _locate(module, roots)
        if file is None:  # no Megatron-Core beside this host
            continue
        path = f"{class_name}.{method}"
        found.append(HookPoint(f"{module}.{path}", path in members_of(file), cost_of_phase(phase)))
    return found


def _assigned(source: Path) -> dict[str, object]:
    return {
        target.id: node.value.value
        for node in tree_of(source).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
