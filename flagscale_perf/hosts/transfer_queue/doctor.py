"""Whether a queue can be traced in this Python environment, read from the sources without running them, and
what stands in the way.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from flagscale_perf.hosts.hook_points import HookPoint, members_of
from flagscale_perf.hosts.transfer_queue import adapter, bridge
from flagscale_perf.hosts.transfer_queue.adapter import OPERATIONS, POINTS
from flagscale_perf.hosts.transfer_queue.workers import DE_DUPLICATION, OUR_LINES, SUBMITTED
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.packages import versions
from flagscale_perf.trace.options import LEVEL_VARIABLE, TraceOptions, hidden_by

PACKAGES = ("TransferQueue", "verl", "ray")
PLUGINS, PLUGIN = "verl.plugins", "flagscale_perf.hosts.transfer_queue.verl_plugin"


@dataclass(frozen=True)
class Queue:
    """The parts of a queue that can be traced.

    Attributes:
        versions: of TransferQueue, verl and Ray: those that are installed.
        hooks: functions that are wrapped, present or missing.
        remarks: what keeps lines or processes from being seen, and what to do.
    """

    versions: dict[str, str]
    hooks: tuple[HookPoint, ...]
    remarks: tuple[str, ...]

    @property
    def works(self) -> bool:
        """Whether operations can be traced."""
        return all(hook.found for hook in self.hooks if hook.cost == OPERATIONS)


def find_queue(environment: Mapping[str, str], is_enabled: bool) -> Queue | None:
    """None where TransferQueue is not installed. `is_enabled`: whether `flagscale-perf enable` was run."""
    found = versions(PACKAGES)
    if PACKAGES[0] not in found:
        return None
    return Queue(found, tuple(_hooks()), tuple(_remarks(environment, found, is_enabled)))


def _hooks() -> Iterator[HookPoint]:
    for point in POINTS:
        found = point.is_in(_members(point.module))
        if found or not point.is_new:
            yield HookPoint(point.path, found, point.cost)
    for module in (bridge.MODULE, bridge.IMPORTED_BY):
        if _source(module) is not None:
            yield HookPoint(f"{module}.{bridge.NAME}", bridge.NAME in _members(module), "calls of functions")


def _remarks(environment: Mapping[str, str], found: dict[str, str], is_enabled: bool) -> Iterator[str]:
    members = (name.rpartition(".") for name in _members(adapter.MODULE))
    yield from adapter.strangers(name for owner, _, name in members if owner == adapter.CLIENT)
    try:
        options = TraceOptions.of(environment)
    except PerfError as error:
        yield f"nothing is traced: {error}"
        return
    if not options.is_on:
        yield "switched off; TQ_TRACE_ENABLED=1 traces functions, TQ_TRACE_DETAIL_ENABLED=1 operations"
    reason = hidden_by(environment.get(LEVEL_VARIABLE, "")) if options.is_on else ""
    if reason:
        yield f"{reason} hides the lines of the logs; records are kept all the same. Set it to INFO"
    if environment.get("TRANSFER_QUEUE_ENABLE") == "0":
        yield "TRANSFER_QUEUE_ENABLE=0: a program that heeds it does not use the queue"
    if options.to_stdout and environment.get("RAY_DEDUP_LOGS") != "0" and DE_DUPLICATION not in environment:
        yield (
            "Ray shows one of many lines that differ in their numbers only; a driver that is traced before it"
            f" imports Ray tells it not to, else set {DE_DUPLICATION}='{OUR_LINES}'; the files have them all"
        )
    if SUBMITTED in environment:
        yield "the workers of a submitted job have the variables of its runtime environment: put TQ_* there"
    if not is_enabled:
        yield _without_enable("verl" in found and _is_registered())


def _without_enable(has_plugin: bool) -> str:
    reached = "processes that import verl" if has_plugin else "no process by itself"
    return (
        f"tracing reaches {reached}; flagscale-perf enable lets it reach all of this Python environment,"
        " Ray's worker_process_setup_hook the workers of a cluster (docs/trace.md)"
    )


def _is_registered() -> bool:
    return any(each.value == PLUGIN for each in metadata.entry_points(group=PLUGINS))


def _source(module: str) -> Path | None:
    root, *rest = module.split(".")
    spec = importlib.util.find_spec(root)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations))).joinpath(*rest).with_suffix(".py")
    return path if path.is_file() else None


def _members(module: str) -> set[str]:
    source = _source(module)
    return set() if source is None else members_of(source)
