"""The figures of a step: the table from which CSV, reports and docs are generated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from flagscale_perf.profile.records import StepRecord
from flagscale_perf.spine.figures import PLAIN, SHARE, Column, Figure, Table, Unit
from flagscale_perf.spine.session import Starts

MS = Unit("ms", 1e6, 3, base=1e9)
Step: TypeAlias = Figure[StepRecord, Starts]

# Parts of a profiled step, in their order: key, what it is. With the residual they make the whole.
PARTS = (
    ("operators", "in operators of the model's modules"),
    ("outside", "in operators outside of any module: loss, optimizer, data"),
    ("host", "in Python, between operators"),
    ("engine", "in autograd's engine, between the backward's nodes"),
    ("communication", "in collectives, waiting for other ranks included"),
    ("residual", "the rest of the step, that none of these holds"),
)


def part_ns(step: StepRecord, key: str) -> int | None:
    """A part by its key; None for a clean step."""
    value: int | None = getattr(step, f"{key}_ns")
    return value


def _plain(key: str, value: Callable[[StepRecord], int | None], meaning: str) -> Step:
    return Figure(key, key.replace("_", " "), PLAIN, lambda step, _: value(step), meaning)


def _part(key: str, meaning: str) -> Step:
    return Figure(f"{key}_ms", key, MS, lambda step, _: part_ns(step, key), meaning)


STEPS = Table(
    record=StepRecord,
    step="number",
    time="",
    context=Starts,
    figures=(
        _plain("process", lambda step: step.process, "number in the session"),
        _plain("number", lambda step: step.number, "of the process's records, from 1"),
        _plain("iteration", lambda step: step.iteration, "as the host counts it"),
        _plain("profiled", lambda step: step.is_profiled, "1; 0 for a clean step"),
        Figure("start", "start", PLAIN, lambda step, starts: starts.label(step.start_ns),
               "when it began, local time", Column("Start", 27)),
        Figure("total_ms", "total", MS, lambda step, _: step.total_ns, "the whole step"),
        *(_part(key, meaning) for key, meaning in PARTS),
        Figure("communication_ratio", "communication share", SHARE,
               lambda step, _: None if step.communication_ns is None or not step.total_ns
               else step.communication_ns / step.total_ns,
               "communication / total"),
        Figure("device_busy_ms", "device busy", MS, lambda step, _: step.device_busy_ns,
               "in which the device ran a kernel"),
        _plain("samples", lambda step: step.samples, "of the step"),
        _plain("tokens", lambda step: step.tokens, "of the step"),
        _plain("events", lambda step: step.events, "of the profiler"),
    ),
)  # fmt: skip
