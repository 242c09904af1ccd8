"""The summary of a run, and the text of its file.

The requirement's own files fix the names of `SessionInfo` and `Statistics`; None is "not known".
"""

from __future__ import annotations

import json
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

from flagscale_perf.spine.figures import Value
from flagscale_perf.spine.jsonl import finite
from flagscale_perf.training.flagscale_names import NAMES, STATISTICS
from flagscale_perf.training.goodput import Goodput
from flagscale_perf.training.hardware import HardwareSummary
from flagscale_perf.training.memory import MemorySummary
from flagscale_perf.training.ranks.totals import RanksSummary
from flagscale_perf.training.summary.settled import SettledSummary


@dataclass(frozen=True)
class SessionInfo:
    """The session and its end: `end_reason` is that of `RunEnd`, or "running", or "killed"."""

    start_time: str
    end_time: str
    total_iterations: int
    session_id: str
    end_reason: str
    first_iteration: int | None
    last_iteration: int | None
    world_size: int | None
    flops_convention: str | None


@dataclass(frozen=True)
class Statistics:
    """Rates over all steps but the first, a slow start included; None where the FLOPs of one are not known.
    The extremes are those of intervals, None like the rates. MFU and HFU are shares of 1, of all `intervals`
    but the suspect ones.
    """

    avg_tflops_per_gpu: float | None
    avg_tflops: float | None
    max_tflops_per_gpu: float | None
    min_tflops_per_gpu: float | None
    avg_throughput_tokens: float | None
    avg_throughput_samples: float | None
    avg_mfu: float | None
    avg_hfu: float | None
    intervals: int
    suspect_intervals: int
    peak_memory_gb: float | None
    avg_iteration_ms: float | None
    p50_iteration_ms: float | None
    p95_iteration_ms: float | None
    min_iteration_ms: float | None
    max_iteration_ms: float | None
    first_iteration_ms: float | None
    self_cost_share: float | None


@dataclass(frozen=True)
class Totals:
    """Sums over all steps, warm-up included."""

    train_steps: int
    skipped_iterations: int
    samples: int
    tokens: int | None
    skipped_samples: int
    model_flops: int | None
    hardware_flops: int | None
    train_s: float
    eval_s: float
    checkpoint_s: float


@dataclass(frozen=True)
class PhaseSummary:
    """Time and share of each phase, over the settled `steps` in which they were measured; over all but the
    first where the run has not settled.
    """

    steps: int
    total_s: dict[str, float | None]
    share: dict[str, float | None]


@dataclass(frozen=True)
class BubbleSummary:
    """Waiting for other pipeline stages, over the same steps; "pipeline" is computing and waiting."""

    bubble_s: float | None
    imbalance_s: float | None
    bubble_share: float | None
    imbalance_share: float | None
    bubble_share_of_pipeline: float | None


@dataclass(frozen=True)
class Failure:
    """A failure inside the monitor."""

    timestamp: str
    iteration: int
    text: str


@dataclass(frozen=True)
class Summary:
    """All of it.

    Attributes:
        failures: the first ones; `failure_count` has all.
        run_facts, config: of the run's header.
        files: what is in which file.
        iteration_logs: the figures of intervals.
    """

    schema_version: int
    session_info: SessionInfo
    final_statistics: Statistics
    settled: SettledSummary
    totals: Totals
    phases: PhaseSummary
    bubble: BubbleSummary
    ranks: RanksSummary
    memory: MemorySummary
    hardware: HardwareSummary
    goodput: Goodput
    dropped_records: int
    failure_count: int
    failures: list[Failure]
    run_facts: dict[str, Any]
    config: dict[str, Any]
    files: dict[str, str]
    iteration_logs: list[dict[str, Value]]

    def ended(self, reason: str) -> Summary:
        """The same with another end reason."""
        return replace(self, session_info=replace(self.session_info, end_reason=reason))

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready, always the same keys; statistics under the names of FlagScale's own monitor, too."""
        return dict(finite(self._content()))

    def text(self) -> str:
        """The content of the file: a line for each key and each row of `iteration_logs`, strict JSON."""
        parts = [f"  {json.dumps(key)}: {_block(value)}" for key, value in self._content().items()]
        return "{\n" + ",\n".join(parts) + "\n}\n"

    def _content(self) -> dict[str, Any]:
        plain: dict[str, Any] = _plain(self)
        statistics = plain["final_statistics"]
        also = {name: statistics[key] for name, key in NAMES[STATISTICS].items()}
        return plain | {"final_statistics": statistics | also}


def _plain(value: Any) -> Any:
    if isinstance(value, Goodput):
        return value.as_dict()
    if is_dataclass(value):
        return {name: _plain(each) for name, each in vars(value).items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _block(value: Any) -> str:
    try:
        if isinstance(value, list) and value:
            return "[\n" + ",\n".join(f"    {json.dumps(row, allow_nan=False)}" for row in value) + "\n  ]"
        return json.dumps(value, indent=2, allow_nan=False).replace("\n", "\n  ")
    except ValueError:  # rarely one that is not finite: to look through all values takes longer
        return _block(finite(value))
