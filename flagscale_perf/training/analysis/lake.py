"""A training's records as tables for SQL: what goes together in lists as rows, and the views of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from flagscale_perf.store.sidecars import Sidecar
from flagscale_perf.store.tables import Tables
from flagscale_perf.training.analysis.every_rank import COLUMNS, EveryRank
from flagscale_perf.training.analysis.report import TrainingReport
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.figures import TABLE
from flagscale_perf.training.ledger.book import rows_of
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rank_records import PHASE_BASE, CutsRecord, NodeRecord, RanksRecord
from flagscale_perf.training.records import OUTCOMES, IntervalRecord, StepRecord
from flagscale_perf.training.work import UNKNOWN


class NodeRow(NamedTuple):
    """A rank of a node, as in `NodeRecord`; None for what a damaged record is too short for."""

    hostname: str
    rank: int
    pid: int | None
    device: str | None
    stage: int | None


class RankRow(NamedTuple):
    """A rank over a stretch of iterations, or `ranks` of them from this one on, as in `RanksRecord`.

    Attributes:
        is_silent: nothing came from it, or from one of these.
        silent_count: how many ranks of the job nothing came from.
        host_ns: as in `IntervalRecord`, like all that follow.
    """

    first_iteration: int
    iteration: int
    rank: int
    ranks: int
    iteration_ns: int | None
    work_ns: int | None
    wait_ns: int | None
    data_ns: int | None
    memory_peak_bytes: int | None
    is_silent: bool
    silent_count: int
    host_ns: int | None
    cores: int | None
    run_delay_ns: int | None
    on_cpu_ns: int | None
    cpu_stall_ns: int | None
    memory_stall_ns: int | None
    io_stall_ns: int | None
    memory_available_bytes: int | None
    disk_bytes: int | None
    network_bytes: int | None
    cpu_limit_milli: int | None
    cpu_periods: int | None
    cpu_throttled_periods: int | None


class RunFigures(NamedTuple):
    """A training in numbers, as its report has them: without the first iteration, and a slow start if any."""

    iterations: int
    iteration_ms: float | None
    tflops_per_gpu: float | None
    mfu: float | None
    tokens_per_s: float | None
    samples_per_s: float | None
    p50_ms: float | None
    p95_ms: float | None
    goodput: float | None


class CutRow(NamedTuple):
    """What a unit of a pipeline stage did in a step before one of its collectives ended, as in `CutsRecord`.

    Attributes:
        ranks: of the unit; None for the usual one, which stands for those that have no row.
        cut: number of the collective in the step, from 0.
        phase: in which the time went.
        is_wait: the unit waited for others in it, and exchanged.
        tokens: in its micro-batches of the whole step, like what follows; None where not known.
        squared_lengths: sum over the documents in them, each of which attends to itself only.
        expert_tokens: that its experts received, all layers together.
        microbatches: that it ran.
    """

    iteration: int
    stage: int
    units: int
    ranks: list[int] | None
    cut: int
    phase: str
    is_wait: bool
    duration_ns: int
    tokens: int | None
    squared_lengths: int | None
    expert_tokens: int | None
    microbatches: int | None


def node_rows(record: NodeRecord) -> Iterator[NodeRow]:
    """A row for each rank."""
    for rank, pid, device, stage in zip_longest(record.ranks, record.pids, record.devices, record.stages):
        if rank is not None:
            yield NodeRow(record.hostname, rank, pid, device, stage)


def rank_rows(record: RanksRecord) -> Iterator[RankRow]:
    """A row for each entry."""
    many, silent = record.ranks_per_entry, {rank // record.ranks_per_entry for rank in record.silent}
    times = (record.iteration_ns, record.work_ns, record.wait_ns, record.data_ns, record.memory_peak_bytes)
    for entry, (own, host) in enumerate(zip(zip(*times, strict=True), record.hosts(), strict=True)):
        which = record.first_iteration, record.iteration, entry * many, many
        yield RankRow(*which, *own, entry in silent, record.silent_count, *host)


def cut_rows(record: CutsRecord) -> Iterator[CutRow]:
    """A row for each unit, cut and phase that has a value."""
    for (ranks, own_ns, waits_ns), known in zip(rows_of(record), record.works(), strict=True):
        work = [None if value == UNKNOWN else value for value in known]
        place = record.iteration, record.stage, record.units, [*ranks] or None
        for column, duration_ns in zip(record.columns, own_ns, strict=True):
            cut, phase = divmod(column, PHASE_BASE)
            yield CutRow(*place, cut, _phase(phase), False, duration_ns, *work)
        for cut, (phase, duration_ns) in enumerate(zip(record.waits, waits_ns, strict=True)):
            yield CutRow(*place, cut, _phase(phase), True, duration_ns, *work)


def run_figures(report: TrainingReport) -> RunFigures:
    """Those of a run; the percentiles are over all iterations but the first."""
    rates, figures = report.rates, report.figures
    return RunFigures(
        report.overview.iterations,
        rates.iteration_ms,
        rates.tflops_per_gpu,
        rates.mfu,
        rates.tokens_per_s,
        rates.samples_per_s,
        figures.p50_ms,
        figures.p95_ms,
        report.goodput.ettr,
    )


def _phase(number: int) -> str:
    return PHASES[number] if 0 <= number < len(PHASES) else f"phase {number}"


# When an iteration was: a rank's or a phase's record has no time of its own.
_TIMES = (
    "(select run_id, iteration, any_value(at_wall_ns) as at_wall_ns, any_value(time) as time"
    " from records.step group by all)"
)
_PLACES = (
    "(select run_id, rank, last(hostname) as hostname, last(device) as device, last(stage) as stage"
    " from records.node group by all)"
)
TABLES = Tables(
    views={
        "steps": "select * from records.step",
        "phases": f"select * from records.phases left join {_TIMES} using (run_id, iteration)",
        "intervals": "select * from records.interval",
        "every_rank": "select * from records.every_rank",
        "ranks": (
            f"select * from records.ranks left join {_PLACES} using (run_id, rank) left join {_TIMES} using"
            " (run_id, iteration)"
        ),
    },
    rows={NodeRecord: node_rows, RanksRecord: rank_rows, CutsRecord: cut_rows},
    words={StepRecord: {"outcome": OUTCOMES}},
    figures={IntervalRecord: TABLE},
    facts={"training": RunFacts},
    runs={"training": run_figures},
    sidecars={"every_rank": Sidecar(COLUMNS, EveryRank)},
)
