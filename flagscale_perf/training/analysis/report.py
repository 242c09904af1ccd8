"""What a report says, as data: every number a text, page or figure shows, in the unit its name has, so that
rendering computes nothing.

Frozen and JSON-ready: `as_dict` has dicts, lists, texts, numbers and None only. None means "not known", never
0. Shares are parts of 1. Figures that `perf_summary_*.json` has, too, are the same numbers. Texts may come
from anywhere: escape them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from flagscale_perf.analysis.blocks import REPORT_VERSION
from flagscale_perf.analysis.replays import Offer
from flagscale_perf.analysis.rules import IN_JOB, Finding
from flagscale_perf.spine.figures import Value
from flagscale_perf.spine.jsonl import finite
from flagscale_perf.store.run_file import Reading
from flagscale_perf.training.analysis.tables import (
    CapturedRanks,
    CriticalPath,
    GoodputBar,
    Memory,
    Monitor,
    Phases,
    Ranks,
    Straggler,
    in_json,
)
from flagscale_perf.training.hardware import HardwareSummary
from flagscale_perf.training.ledger.ledger import Ledger
from flagscale_perf.training.rates import Rates
from flagscale_perf.training.summary.settled import NOT_SETTLED, SettledSummary


@dataclass(frozen=True)
class Node:
    """The ranks of one node: how many, the lowest and the highest number, and the names of their devices,
    each once.
    """

    hostname: str
    ranks: int
    first_rank: int
    last_rank: int
    devices: list[str]


@dataclass(frozen=True)
class Overview:
    """What ran, on what, by which conventions.

    Attributes:
        session_id: of the run file.
        end_reason: as in `RunEnd`, or "running" or "killed".
        started, ended: local time of the run's machine, ISO 8601 with a space, whole seconds.
        first_iteration, last_iteration: finished ones; None if there is none.
        iterations, skipped_iterations: how many, and how many of them trained nothing.
        train_iters: where training is to end; None if not known.
        resume_iteration: 0 for a fresh start.
        log_interval: iterations of a point of the trend.
        host, script, hostname, package_version, restart_count: as in `RunFacts`, also the following ones.
        parallel: sizes that are known, by "TP", "PP", "DP", "CP", "EP".
        peak_tflops: dense peak of one device; None, and then `peak_source` says why.
        missing: what the monitor could not get, one phrase each.
        nodes: those that are in the file; none in files of one rank.
        config: options in force.
    """

    session_id: str
    end_reason: str
    started: str
    ended: str
    first_iteration: int | None
    last_iteration: int | None
    iterations: int
    skipped_iterations: int
    train_iters: int | None
    resume_iteration: int | None
    log_interval: int | None
    host: str | None
    script: str | None
    hostname: str | None
    package_version: str | None
    restart_count: int | None
    world_size: int | None
    device: str | None
    dtype: str | None
    parallel: dict[str, int]
    pipeline_schedule: str | None
    model_family: str | None
    seq_length: int | None
    micro_batch_size: int | None
    global_batch_size: int | None
    flops_convention: str | None
    peak_tflops: float | None
    peak_source: str | None
    missing: list[str]
    nodes: list[Node]
    config: dict[str, Any]


@dataclass(frozen=True)
class Figures:
    """The run in numbers, a slow start included, but without the first iteration, except `first_iteration_ms`
    and what is a total: those are of all iterations.
    """

    tflops_per_gpu: float | None
    min_tflops_per_gpu: float | None
    max_tflops_per_gpu: float | None
    mfu: float | None
    hfu: float | None
    intervals: int
    suspect_intervals: int
    tokens_per_s: float | None
    samples_per_s: float | None
    iteration_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    max_ms: float | None
    first_iteration_ms: float | None
    train_s: float
    eval_s: float
    checkpoint_s: float
    samples: int
    skipped_samples: int
    tokens: int | None
    model_flops: int | None
    hardware_flops: int | None


@dataclass(frozen=True)
class Point:
    """One interval of the trend.

    Attributes:
        figures: by their keys in `training.figures`.
        is_slow: one of its steps is slow, see `SlowStep`.
        groups_ms: a mean step's phases added up by `training.phases.GROUPS`, for a stacked area; None for
            what the host did not name, and where not measured.
    """

    figures: dict[str, Value]
    is_slow: bool
    groups_ms: dict[str, float | None] | None

    def number(self, key: str) -> float | None:
        """A figure; None where it is not known or a text."""
        value = self.figures[key]
        return value if isinstance(value, int | float) else None

    @property
    def iteration(self) -> float:
        """The last one in it."""
        return self.number("iteration") or 0

    def as_dict(self) -> dict[str, Any]:
        """The figures and what goes with them, side by side."""
        return self.figures | {"is_slow": self.is_slow, "groups_ms": self.groups_ms}


@dataclass(frozen=True)
class SlowStep:
    """A step that took more than `findings.signals.SLOW_STEP` times the median of those before."""

    iteration: int
    elapsed_s: float
    iteration_ms: float
    usual_ms: float


# By a figure's key the iteration and the figure of intervals, of a long run the lowest and the highest of
# each stretch; of those after the warm-up, except memory and hardware. Besides: "groups" has the time and the
# groups of a mean step, "suspect" TFLOPS above the peak, "capped" clocks that something held down, and what.
Curves = dict[str, list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Trend:
    """The run over time.

    Attributes:
        points: intervals, oldest first; of a long run every second, fourth ... one, at most some 2000, always
            with the last.
        curves: what a page draws of all intervals, see `Curves`; in no JSON.
        intervals: how many the file has.
        slow_steps: the longest ones, in the order of time, at most 100.
        slow_step_count: how many there are.
        slow_excess_s: what all of them took longer than usual.
    """

    points: list[Point]
    curves: Curves
    intervals: int
    slow_steps: list[SlowStep]
    slow_step_count: int
    slow_excess_s: float


@dataclass(frozen=True)
class TrainingReport:
    """Everything.

    Attributes:
        findings: in the order of their cost, those without a cost last; none where nothing is wrong.
        unjudged: what no finding could be looked for in, and why, one phrase each; empty in a list of runs,
            which does not show it.
        figures: of all iterations but the first.
        settled: the same of those after the start.
        ledgers: of each pipeline stage whose ranks were recorded side by side; JSON has them as
            `tables.in_json` makes them.
        critical_path: of captured steps of a pipeline.
        captured: every rank in captured steps.
        offers: the changes that would gain the most, by a replay of these; None where they are not replayed.
        few_steps: settled steps, where these are too few to judge speed by, else None; in no JSON.
    """

    overview: Overview
    findings: list[Finding]
    figures: Figures
    trend: Trend
    phases: Phases
    ranks: Ranks | None
    stragglers: list[Straggler]
    memory: Memory
    hardware: HardwareSummary
    goodput: GoodputBar
    monitor: Monitor
    files: dict[str, str]
    reading: Reading
    unjudged: list[str] = field(default_factory=list)
    settled: SettledSummary = NOT_SETTLED
    ledgers: list[Ledger] = field(default_factory=list)
    critical_path: CriticalPath | None = None
    captured: CapturedRanks | None = None
    offers: list[Offer] | None = None
    few_steps: int | None = None

    @property
    def rates(self) -> Rates:
        """Of the settled steps; of all but the first where there is no slow start, or none that is known."""
        all_ = Rates(**{name: getattr(self.figures, name) for name in Rates._fields})
        if not self.settled.has_slow_start:
            return all_
        settled = Rates.of_summary(self.settled)
        # Suspect intervals are in no average of MFU.
        return settled if settled.mfu is not None else settled._replace(mfu=all_.mfu, hfu=all_.hfu)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready, with `report_version` as the first key."""
        trend = replace(self.trend, curves={}, points=[])  # `asdict` copies each value of them
        content = {"report_version": REPORT_VERSION} | asdict(replace(self, ledgers=[], trend=trend))
        for each in content["findings"]:
            for name in IN_JOB:
                del each[name]
        content["ledgers"] = list(map(in_json, self.ledgers))
        del content["trend"]["curves"], content["few_steps"]
        content["trend"]["points"] = [point.as_dict() for point in self.trend.points]
        content["hardware"] = {"power_w": None} | content["hardware"]  # its place since the first version
        return dict(finite(content))
