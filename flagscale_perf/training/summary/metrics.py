"""A training as Prometheus metrics: counters and states, and the gauges of the table of figures.

Names and units follow Prometheus' conventions: base units, ratios of 1, counters end in `_total`. How many
series there are depends neither on the length of the run nor on the size of the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flagscale_perf.sinks.base import Metric, Series
from flagscale_perf.spine.clock import NS_PER_S, Anchor
from flagscale_perf.spine.figures import Rows
from flagscale_perf.spine.records import EventRecord, Record, RunEnd, RunHeader
from flagscale_perf.spine.units import printable
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.figures import FIGURES
from flagscale_perf.training.figures import TABLE as FIGURE_TABLE
from flagscale_perf.training.rank_records import RanksRecord, StragglerIdentity, StragglerRecord
from flagscale_perf.training.records import OUTCOMES, IntervalRecord, StepRecord
from flagscale_perf.training.utilisation import Scale
from flagscale_perf.training.window import end_mono_ns

MJ_PER_J = 1000
MAX_LABEL = 128
EVENTS = (
    *("failure", "drop", "resume", "note", "clock", "suspect", "shed", "slow", "memory", "hardware"),
    *("rank", "standstill", "other"),
)
RUN_LABELS = (
    *("session_id", "package_version", "host", "script", "hostname", "device", "dtype", "flops_convention"),
    *("model_family", "world_size", "tensor_parallel", "pipeline_parallel", "data_parallel"),
    *("context_parallel", "expert_parallel"),
)

_OWN = (
    Metric("run_info", "What runs, on what; the value is 1.", RUN_LABELS),
    Metric("running", "1 while the run goes on, 0 after its end was recorded."),
    Metric("end_info", "How the run ended, from its end on; the value is 1.", ("reason",)),
    Metric("start_timestamp_seconds", "Unix time of the monitor's start.", (), NS_PER_S),
    Metric(
        "last_iteration_timestamp_seconds",
        "Unix time of the end of the last finished iteration.",
        (),
        NS_PER_S,
    ),
    Metric("last_iteration", "Number of the last finished iteration."),
    Metric("target_iterations", "Iteration at which training ends."),
    Metric("iterations_total", "Iterations of this session by what became of them.", ("outcome",)),
    Metric("samples_total", "Sequences trained in this session, over all data-parallel ranks."),
    Metric("skipped_samples_total", "Sequences consumed without training in this session."),
    Metric("tokens_total", "Tokens trained in this session."),
    Metric(
        "model_flops_total",
        "Model FLOPs of the trained sequences, all devices together; absent where they are not known.",
    ),
    Metric(
        "iteration_seconds_total", "Time of iterations, without evaluation and checkpoints.", (), NS_PER_S
    ),
    Metric("evaluation_seconds_total", "Time of evaluation between iterations.", (), NS_PER_S),
    Metric("checkpoint_seconds_total", "Time that training waited for checkpoints.", (), NS_PER_S),
    Metric("monitor_seconds_total", "Time that the monitor took of the training thread.", (), NS_PER_S),
    Metric("allocator_retries_total", "How often rank 0's allocator found no room and freed its cache."),
    Metric("energy_joules_total", "Energy of rank 0's device as far as it was read.", (), MJ_PER_J),
    Metric("events_total", "What the monitor remarked, by kind.", ("event",)),
    Metric("dropped_records_total", "Records lost because the disk did not take them in time."),
    Metric("device_peak_flops_per_second", "Dense peak of one device."),
    Metric("device_memory_bytes", "All the memory of rank 0's device."),
    Metric(
        "ranks_work_seconds",
        "Time that a rank works per step: the lowest of all ranks, the median, the highest.",
        ("rank",),
        NS_PER_S,
    ),
    Metric("silent_ranks", "Ranks of which nothing was read in the last stretch."),
    Metric("stragglers", "Ranks that make the others wait now."),
    Metric(
        "straggler_excess_seconds",
        "How much longer per step the slowest of them works than it should.",
        (),
        NS_PER_S,
    ),
)
# Counters that sum a field of the steps.
_SUMS = {
    "samples_total": "samples",
    "skipped_samples_total": "skipped_samples",
    "tokens_total": "tokens",
    "model_flops_total": "model_flops",
    "iteration_seconds_total": "iteration_ns",
    "evaluation_seconds_total": "eval_ns",
    "checkpoint_seconds_total": "checkpoint_ns",
    "monitor_seconds_total": "self_ns",
}


def _of_figures() -> Iterator[Metric]:
    for figure in FIGURES:
        if gauge := figure.gauge:
            labels = (gauge.label[0],) if gauge.label else ()
            yield Metric(gauge.name, gauge.help, labels, figure.unit.base)


TABLE: Mapping[str, Metric] = {metric.name: metric for metric in (*_OWN, *_of_figures())}


class RunMetrics:
    """One session as metrics; of the whole session, so that counters never go back."""

    table = TABLE

    def __init__(self, header: RunHeader) -> None:
        """Raises ValueError for a header whose session id is none."""
        facts = RunFacts.of(header.facts)
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self._rows = Rows(FIGURE_TABLE, header)
        self._slow: dict[StragglerIdentity, StragglerRecord] = {}
        self._values: Series = {name: {} for name in TABLE}
        known = vars(facts) | {"session_id": header.session_id}
        self._set("run_info", 1, *(_label(known.get(name)) for name in RUN_LABELS))
        self._set("running", 1)
        self._set("start_timestamp_seconds", header.start_wall_ns)
        self._set("target_iterations", facts.train_iters)
        self._set("device_peak_flops_per_second", Scale.of(facts).peak_flop_per_s)
        self._set("device_memory_bytes", facts.device_memory_bytes)
        self._begin_counters()

    def _begin_counters(self) -> None:
        """A counter that has not counted yet is 0: a rate needs a value to begin with."""
        for outcome in OUTCOMES.values():
            self._set("iterations_total", 0, outcome)
        for event in EVENTS:
            self._set("events_total", 0, event)
        for name in (*_SUMS, "dropped_records_total"):
            self._set(name, 0)

    def add(self, record: Record) -> None:
        """Takes the next record; counters only grow, or are removed for good."""
        if isinstance(record, StepRecord):
            self._add_step(record)
        elif isinstance(record, IntervalRecord):
            self._add_interval(record)
        elif isinstance(record, EventRecord):
            self._count("events_total", 1, record.name if record.name in EVENTS else "other")
        elif isinstance(record, RanksRecord):
            self._add_ranks(record)
        elif isinstance(record, StragglerRecord):
            self._add_straggler(record)
        elif isinstance(record, RunEnd):
            self._set("running", 0)
            self._set("end_info", 1, _label(record.reason))
            self._set("dropped_records_total", record.dropped)

    def values(self) -> Series:
        """Metric to labels to value, in base units."""
        return {
            name: {labels: value / TABLE[name].divisor for labels, value in series.items()}
            for name, series in self._values.items()
        }

    def _add_step(self, step: StepRecord) -> None:
        self._set("last_iteration", step.iteration)
        self._set("last_iteration_timestamp_seconds", self._anchor.wall_of(end_mono_ns(step)))
        self._count("iterations_total", step.iterations, OUTCOMES[step.outcome])
        for name, field in _SUMS.items():
            self._count(name, getattr(step, field))
        if step.memory_retries is not None:
            self._set("allocator_retries_total", step.memory_retries)

    def _add_interval(self, interval: IntervalRecord) -> None:
        for gauge, value in self._rows.gauges(interval):
            self._set(gauge.name, value, *(gauge.label or ())[1:])
        self._set("dropped_records_total", interval.dropped)
        if interval.energy_mj is not None:
            self._values["energy_joules_total"].setdefault((), 0)
            self._count("energy_joules_total", interval.energy_mj)

    def _add_ranks(self, ranks: RanksRecord) -> None:
        known = sorted(work_ns for work_ns in ranks.work_ns if work_ns is not None)
        for name, place in (("lowest", 0), ("median", (len(known) - 1) // 2), ("highest", -1)):
            self._set("ranks_work_seconds", known[place] if known else None, name)
        self._set("silent_ranks", ranks.silent_count)

    def _add_straggler(self, straggler: StragglerRecord) -> None:
        if straggler.is_over:
            self._slow.pop(straggler.identity, None)
        else:
            self._slow[straggler.identity] = straggler
        self._set("stragglers", len({rank for each in self._slow.values() for rank in each.ranks}))
        self._set(
            "straggler_excess_seconds", max((each.excess_ns for each in self._slow.values()), default=None)
        )

    def _set(self, name: str, value: float | None, *labels: str) -> None:
        if value is None:
            self._values[name].pop(labels, None)
        else:
            self._values[name][labels] = value

    def _count(self, name: str, value: int | None, *labels: str) -> None:
        """Adds to a counter; removes it for good once a value is not known."""
        before = self._values[name].get(labels)
        self._set(name, None if before is None or value is None else before + value, *labels)


def _label(value: Any) -> str:
    return "" if value is None else printable(str(value))[:MAX_LABEL]
