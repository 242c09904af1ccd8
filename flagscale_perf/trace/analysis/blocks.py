"""Traces as blocks, the same for every output format."""

from __future__ import annotations

from collections.abc import Sequence

from flagscale_perf.analysis.blocks import (
    Block,
    Cell,
    Findings,
    Note,
    Pairs,
    Quantity,
    Report,
    Section,
    Table,
    bars_to_scale,
    lasting,
    sized,
    three,
)
from flagscale_perf.analysis.session import tone_of
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.trace.analysis import verdicts
from flagscale_perf.trace.analysis.head import lead_of, tiles_of
from flagscale_perf.trace.analysis.layout import NOTHING
from flagscale_perf.trace.analysis.lineage import Lineage
from flagscale_perf.trace.analysis.pictures import pictures
from flagscale_perf.trace.analysis.remarks import remarks_of
from flagscale_perf.trace.analysis.report import TraceReport, bound_of
from flagscale_perf.trace.analysis.sample import latest_table
from flagscale_perf.trace.figures import MIB, ONE_OF, OTHER, STAGES
from flagscale_perf.trace.records import Kind
from flagscale_perf.trace.spread import Spread
from flagscale_perf.trace.sums import FunctionSums

COLOURS = {stage.key: stage.colour for stage in STAGES} | {OTHER: "grey"}
MOST_PROCESSES = 64
_PERCENTILES = (0.5, 0.95, 0.99)
_SPREAD = ("mean ms", "p50", "p95", "p99", "max")


def report_of(found: TraceReport) -> Report:
    """The report as blocks."""
    traces, sums = found.traces, found.sums
    pairs = Pairs(
        [
            ("begun", traces.begun),
            ("first call", lead_of(found)),
            ("recorded with", traces.versions or None),
            ("traces", Quantity(sums.trace_count)),
            ("without id", Quantity(sums.without_id) if sums.without_id else None),
        ]
    )
    return Report(
        title=traces.title,
        subject=", ".join(filter(None, (traces.subject, f"{sums.calls:,} calls, {sums.count:,} operations"))),
        state=traces.state,
        tone=tone_of(traces.state),
        facts=[pairs, *_remarks(found)],
        tiles=tiles_of(found),
        findings=Findings(
            found.findings,
            found.unjudged,
            None if sums.calls or sums.count else "no call or operation was recorded",
        ),
        sections=[section for section in _sections(found) if section.blocks],
        content=found,
        rows=_rows(found),
        reading=traces.reading,
    )


def _remarks(found: TraceReport) -> list[Note]:
    notes = [Note(line, "warn") for line in remarks_of(found.traces)]
    if not (found.sums.calls or found.sums.count or found.sums.waits):
        notes.insert(0, Note(NOTHING, "warn"))
    sampled = max((one.weight_within() for one in _totals(found)), default=0.0)
    if sampled:
        notes.append(
            Note("sampled: every figure is scaled up, +- is where 95 % of such samples would have it")
        )
    return notes


def _totals(found: TraceReport) -> list[Spread]:
    sums = found.sums
    return [*(one.total for one in sums.functions.values()), *(one.total for one in sums.operations.values())]


def _sections(found: TraceReport) -> list[Section]:
    sections = [
        Section("functions", "Functions", "By function", _functions(found)),
        Section("processes", "Processes", "By process", _processes(found)),
        Section("operations", "Operations", "Operations of the client", _operations(found)),
        Section("waits", "Waits", "Consumers that wait for samples", _waits(found)),
        Section("waterfall", "Waterfall", "Where the time of an operation goes", _waterfall(found)),
        Section("cost", "Cost", "What an operation costs by its shape", _cost(found)),
        Section(
            "lineage",
            "Lineage",
            "From the put that made a sample to the get that took it",
            _lineage(found.lineage),
        ),
    ]
    return sections + pictures(found)


def _waits(found: TraceReport) -> list[Block]:
    rows: list[Sequence[Cell]] = [
        (
            task,
            process,
            Quantity(one.answered),
            Quantity(one.unanswered),
            Quantity(one.waited),
            lasting(one.waited_ns),
            Quantity(one.waited_ns / found.wall_ns, "share", 1) if found.wall_ns else None,
            lasting(one.first_ns),
        )
        for (process, task), one in sorted(found.sums.waits.items(), key=lambda item: -item[1].waited_ns)
    ]
    if not rows:
        return []
    head = ("consumer", "process", "batches", "too few", "waited for", "waited", "of the wall", "first one")
    said = (
        "waited: from the first request that found too few samples to the one that got them; first one: apart"
    )
    return [Table(head, rows, 11, "Waits for samples"), Note(said)]


def _functions(found: TraceReport) -> list[Block]:
    functions = found.sums.functions.items()
    if not functions:
        return []
    rows = [_function(name, one) for name, one in functions]
    times = [row for name, one in functions for row in _times(name, one)]
    shares = ("get", "compute", "put", "other", "queue")
    head = ("function", "calls", "failed", "mean ms", "+- ms", *shares, "queue is", "compute is")
    tones = [verdicts.TONES.get(verdicts.of_queue(one.queue_share) or "", "") for _, one in functions]
    return [
        Table(head, rows, 11, "Where the time goes", tones=tones),
        Table(("function", "", "calls", *_SPREAD), times, 6, "Times"),
        Note(verdicts.RULES),
    ]


def _function(name: str, one: FunctionSums) -> Sequence[Cell]:
    total = one.total.total or 1.0
    get, compute, put = one.parts()
    left = max(0.0, total - get - compute - put)
    return (
        name,
        _count(one.total),
        Quantity(sum(one.errors.values())),
        _ms(one.total.mean),
        _ms(one.total.mean_within()) if one.total.mean_within() else None,
        *(Quantity(part / total, "share", 1) for part in (get, compute, put, left, get + put)),
        verdicts.of_queue(one.queue_share),
        verdicts.of_compute(one.compute_share),
    )


def _times(name: str, one: FunctionSums) -> list[Sequence[Cell]]:
    parts = (("total", one.total), ("get", one.get), ("compute", one.compute), ("put", one.put))
    return [(name, part, *_spread(spread)) for part, spread in parts if part == "total" or spread.high]


def _spread(spread: Spread) -> Sequence[Cell]:
    return (_count(spread), *map(_ms, (spread.mean, *map(spread.percentile, _PERCENTILES), spread.high)))


def _count(spread: Spread) -> Cell:
    count = Quantity(round(spread.weight))
    within = spread.weight_within()
    return (count, " +- ", Quantity(round(within))) if within else count


def _processes(found: TraceReport) -> list[Block]:
    sums = found.sums
    ordered = sorted(sums.by_process.items(), key=lambda item: -item[1].total.total)
    if len({process for process, _ in sums.by_process} | {process for process, _ in sums.operations_by}) < 2:
        return []
    calls: list[Sequence[Cell]] = [
        (
            process,
            function,
            _count(one.total),
            Quantity(sum(one.errors.values())),
            _ms(one.total.mean),
            _ms(one.total.percentile(0.95)),
            Quantity(one.queue_share, "share", 1),
        )
        for (process, function), one in ordered
        if one.calls
    ]
    operations: list[Sequence[Cell]] = [
        (process, kind.name.lower(), *_spread(spread))
        for (process, kind), spread in sorted(sums.operations_by.items(), key=lambda item: -item[1].total)
    ]
    blocks: list[Block] = []
    if calls:
        head = ("process", "function", "calls", "failed", "mean ms", "p95 ms", "queue")
        blocks.append(Table(head, calls, 5, "Calls", most=MOST_PROCESSES))
    if operations:
        more = ("process", "", "operations", *_SPREAD)
        blocks.append(Table(more, operations, 6, "Operations", most=MOST_PROCESSES, is_folded=True))
    return blocks


def _operations(found: TraceReport) -> list[Block]:
    rows: list[Sequence[Cell]] = []
    notes: list[Cell] = []
    tones = []
    for kind, one in found.sums.operations.items():
        if not one.total.count:
            continue
        speed = one.speed.percentile(0.5)
        verdict, model = verdicts.of_speed(speed), found.models[kind]
        bound = bound_of(one, model)
        rows.append(
            (
                kind.name.lower(),
                _count(one.total),
                Quantity(sum(one.errors.values())),
                *map(_ms, (one.total.mean, *map(one.total.percentile, _PERCENTILES))),
                sized(one.size.mean),
                sized(speed, "/s"),
                verdict,
                bound,
            )
        )
        tones.append(verdicts.TONES.get(str(verdict), "") if bound in (None, "bytes") else "")
        notes.append(f"what holds it is not known: {model.reason}" if model.reason else None)
    if not rows:
        return []
    head = ("", "operations", "failed", *_SPREAD[:-1], "size", "throughput", "that is", "held by")
    return [Table(head, rows, 10, tones=tones, notes=notes)]


def _waterfall(found: TraceReport) -> list[Block]:
    falls = {kind: rows for kind, one in found.sums.operations.items() if (rows := one.waterfall())}
    means = {kind: (found.sums.operations[kind].total.mean or 0.0) / NS_PER_MS for kind in falls}
    parts = {
        f"{ONE_OF[kind]}, on average": [(name, means[kind] * share, COLOURS[name]) for name, _, share in rows]
        for kind, rows in falls.items()
    }
    blocks: list[Block] = [*bars_to_scale("ms", parts)]
    table: list[Sequence[Cell]] = [
        (
            kind.name.lower(),
            name,
            three(means[kind] * share),
            Quantity(share, "share", 1),
            *_tail(found, kind, name),
        )
        for kind, rows in falls.items()
        for name, _, share in rows
    ]
    if table:
        blocks.append(Table(("", "stage", "mean ms", "of all", *_SPREAD[1:-1]), table, 5))
    for kind in falls:
        units = sorted(found.sums.operations[kind].units.items(), key=lambda item: -item[1].count)
        if units:
            waited: list[Sequence[Cell]] = [(name, *_spread(spread)) for name, spread in units]
            title = f"Storage unit that a {kind.name.lower()} waited for longest"
            blocks.append(Table(("unit", "operations", *_SPREAD), waited, 6, title, most=16))
    return blocks


def _tail(found: TraceReport, kind: Kind, stage: str) -> Sequence[Cell]:
    spread = found.sums.operations[kind].stages.get(stage)
    return [None if spread is None else _ms(spread.percentile(share)) for share in _PERCENTILES]


def _cost(found: TraceReport) -> list[Block]:
    rows: list[Sequence[Cell]] = []
    for kind, model in found.models.items():
        one = found.sums.operations[kind]
        shape = one.shapes.usual()
        if not model or shape is None:
            continue
        parts = model.parts(*shape.each)
        whole = sum(parts) or 1.0
        rows.append(
            (
                kind.name.lower(),
                _ms(model.fixed_ns),
                three(model.cell_ns / 1000),
                _ms(model.byte_ns * MIB),
                Quantity(model.error, "share", 0),
                Quantity(model.calls),
                Quantity(model.shapes),
                *(Quantity(part / whole, "share", 0) for part in parts),
            )
        )
    if not rows:
        return []
    costs, shares = ("fixed ms", "us a cell", "ms a MiB"), ("fixed", "cells", "bytes")
    head = ("", *costs, "off by", "operations", "shapes", *shares)
    note = (
        "a cell is one field of one row; the last three are shares of the time of an operation of usual shape"
    )
    return [Table(head, rows, 9), Note(note)]


def _lineage(lineage: Lineage | None) -> list[Block]:
    if lineage is None or not (lineage.consumed or lineage.unknown):
        return []
    unjoined = lineage.consumed - lineage.joined
    facts = Pairs(
        [
            ("samples got", Quantity(lineage.consumed)),
            ("joined to their put", Quantity(lineage.joined_share, "share", 2)),
            ("put in no file that was read", Quantity(unjoined) if unjoined else None),
            ("indexes not recorded", Quantity(lineage.unknown) if lineage.unknown else None),
            ("got before their put was done", Quantity(lineage.negative) if lineage.negative else None),
            ("by at most", lasting(-lineage.worst_ns) if lineage.negative else None),
            ("puts behind a get", three(lineage.puts_per_get.mean)),
            ("processes behind a get", three(lineage.processes_per_get.mean)),
            ("last consumer", lineage.last.name or None),
            ("samples put", Quantity(lineage.made)),
            ("never got by it, and cleared", Quantity(lineage.cleared) if lineage.cleared else None),
            ("never got by it, left at the end", Quantity(lineage.left) if lineage.left else None),
            ("age of its samples", three(lineage.last.mean_age, "steps")),
        ]
    )
    flows = sorted(lineage.flows.items(), key=lambda item: item[1].residence.total)
    rows: list[Sequence[Cell]] = [
        (
            source,
            target,
            Quantity(flow.samples),
            *_spread(flow.residence)[1:],
            Quantity(flow.mean_steps, "", 2),
            Quantity(max(flow.steps, default=None), "", 0),
        )
        for (source, target), flow in flows
    ]
    head = ("put by", "got by", "samples", *_SPREAD, "steps", "at most")
    blocks: list[Block] = [facts, Table(head, rows, 8, "How long samples stay in the queue")]
    held: list[Sequence[Cell]] = [
        (
            name,
            Quantity(one.batches),
            Quantity(one.last),
            Quantity(one.last / one.batches, "share", 1),
            _ms(one.held.mean),
            three(one.held.total / NS_PER_S),
        )
        for name, one in sorted(lineage.holders.items(), key=lambda item: -item[1].held.total)
    ]
    if held:
        names = ("process", "batches", "came last", "of them", "held each ms", "all s")
        blocks.append(Table(names, held, 5, "Whose samples a batch waited for", most=16))
    return blocks + latest_table(lineage)


def _rows(found: TraceReport) -> list[Sequence[object]]:
    """Rows of the CSV: one for each function in each process."""
    seconds = ("total_s", "get_s", "compute_s", "put_s", "mean_s", "p50_s", "p95_s", "p99_s")
    rows: list[Sequence[object]] = [("process", "function", "calls", "failed", *seconds)]
    for (process, function), one in found.sums.by_process.items():
        times = [one.total.total, *one.parts(), one.total.mean, *map(one.total.percentile, _PERCENTILES)]
        figures = ["" if time is None else time / NS_PER_S for time in times]
        rows.append([process, function, one.calls, sum(one.errors.values()), *figures])
    return rows


def _ms(value_ns: float | None) -> Quantity | None:
    """For a column of milliseconds."""
    return None if value_ns is None else three(value_ns / NS_PER_MS)
