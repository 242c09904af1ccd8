"""A session of calls as blocks, the same for every output format."""

from __future__ import annotations

from collections.abc import Sequence

from flagscale_perf.analysis.blocks import (
    Block,
    Cell,
    Findings,
    Lane,
    Line,
    Note,
    Pairs,
    Panel,
    Quantity,
    Report,
    Section,
    Series,
    StackedBar,
    Stripe,
    Table,
    Tile,
    Waterfall,
    ms,
)
from flagscale_perf.analysis.session import tone_of
from flagscale_perf.rpc.analysis.report import CallsReport
from flagscale_perf.rpc.analysis.served import PARTS, Served
from flagscale_perf.rpc.analysis.source import RunSource
from flagscale_perf.rpc.figures import MIB, method_name, status_name, throughput
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.rpc.stages import ALL_STAGES, Stage, stage_times
from flagscale_perf.rpc.totals import Totals
from flagscale_perf.spine.averages import percentile
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S


def report_of(found: CallsReport) -> Report:
    """The blocks of a session of calls, for every format."""
    state = found.source.state()
    facts = found.facts
    where = ", ".join(filter(None, (facts.transport, facts.endpoint)))
    pairs = Pairs(
        [
            ("begun", found.source.begun()),
            ("connection", where or None),
            ("carried by", ", ".join(filter(None, (facts.payload, facts.control))) or None),
            ("server", ", ".join(filter(None, (facts.device, facts.dtype))) or None),
            ("empty call", ms(facts.latency_ns, "ms")),
            ("recorded", ", ".join(found.source.selected()) or None),
        ]
    )
    return Report(
        title=found.source.title(),
        subject=f"{found.overall.calls:,} calls over {facts.transport or 'an unknown transport'}",
        state=state,
        tone=tone_of(state),
        facts=[pairs, *_remarks(found)],
        tiles=_tiles(found.overall),
        findings=Findings(
            found.findings, found.unjudged, None if found.overall.calls else "no call was recorded"
        ),
        sections=[section for section in _sections(found) if section.blocks],
        content=found,
        rows=found.source,
        reading=found.reading,
        complaint=complaint_of(found),
    )


def complaint_of(found: CallsReport) -> str:
    """What is wrong with a log, as no reader reports it, unlike a run file's; "" if nothing is."""
    reading = found.reading
    if isinstance(found.source, RunSource):
        return ""
    if reading.skipped:
        first = reading.first_skipped[0]
        more = f"; {reading.skipped} lines were left out" if reading.skipped > 1 else ""
        return f"{reading.path}:{first.number}: {first.reason}{more}"
    return "" if found.overall.calls else f"{reading.path}: no call has been logged"


def _remarks(found: CallsReport) -> list[Note]:
    notes = []
    overall = found.overall
    if not overall.calls and not found.served.methods:
        notes.append(Note("no call has been recorded", "warn"))
    if overall.failed:
        notes.append(Note(f"{overall.failed} of {overall.calls} calls failed", "bad"))
    if found.missing:
        words = "call is" if found.missing == 1 else "calls are"
        notes.append(Note(f"{found.missing} {words} missing, by the gaps in their numbers", "bad"))
    if found.facts.receive_has_wait and overall.calls:
        notes.append(Note("receive has the wait for the reply and the server's time, too"))
    if told := overall.partly_told_words():
        notes.append(Note(told))
    reading = found.reading
    bad = (f"{reading.path}:{line.number}: {line.reason}" for line in reading.first_skipped[:3])
    return [
        *notes,
        *(Note(line, "bad") for line in bad),
        *(Note(event, "warn") for event in found.source.events[:5]),
    ]


def _tiles(overall: Totals) -> list[Tile]:
    speed = overall.bytes_per_s
    mean = overall.total_ns / overall.calls if overall.calls else None
    return [
        Tile("calls", Quantity(overall.calls, "")),
        Tile("time in calls", Quantity(overall.total_ns / NS_PER_S, "s", 3)),
        Tile("a call", ms(mean, "ms"), "on average"),
        Tile("sent", _mb(overall.sent_bytes)),
        Tile("received", _mb(overall.received_bytes)),
        Tile("throughput", None if speed is None else Quantity(speed / MIB, "MiB/s", 1), "of calls' time"),
    ]


def _sections(found: CallsReport) -> list[Section]:
    overall = found.overall
    if not overall.calls:
        return [Section("server", "Server", "At the server", _served(found.served))]
    return [
        Section("stages", "Stages", "Where the time of the calls goes", [stage_bar("all calls", overall)]),
        Section("methods", "Methods", "By method", [_methods(found), _stages_by_method(found)]),
        Section("layer", "Layer", "A layer of calls", _layer(found)),
        Section("calls", "Calls", "The calls in order", [_series(found)]),
        Section("spread", "Spread", "How much the stages vary", [_spread(found)]),
        Section("slowest", "Slowest", "Slowest and largest calls", [_slowest(found), _largest(found)]),
        Section("server", "Server", "At the server", _served(found.served)),
    ]


def stage_bar(title: str, totals: Totals) -> StackedBar:
    """Where the time of these calls goes."""
    parts = [
        Stripe(one.stage.name, one.took_ns / NS_PER_MS, one.share, one.stage.colour)
        for one in totals.stages()
        if one.took_ns is not None
    ]
    return StackedBar(title, "ms", parts)


def _methods(found: CallsReport) -> Table:
    head = ("method", "calls", "failed", "mean ms", "total ms", "sent KiB", "received KiB", "share")
    rows: list[Sequence[Cell]] = [
        (
            method_name(name),
            Quantity(totals.calls),
            Quantity(totals.failed),
            ms(totals.total_ns / totals.calls),
            ms(totals.total_ns),
            _kb(totals.sent_bytes / totals.calls),
            _kb(totals.received_bytes / totals.calls),
            Quantity(share, "share", 1),
        )
        for name, totals, share in found.by_method()
    ]
    return Table(head, rows, len(head) - 1)


def _stages_by_method(found: CallsReport) -> Table:
    """Mean times of the calls that tell the stage."""
    shown = [place for place, one in enumerate(found.overall.stages()) if one.took_ns]
    head = ("method", *(ALL_STAGES[place].name for place in shown))
    rows: list[Sequence[Cell]] = []
    for name, totals, _ in found.by_method():
        times = [Quantity(totals.mean_ms(place), "", 3) for place in shown]
        rows.append((method_name(name), *times))
    return Table(head, rows, len(shown), "Stages of a call, mean ms")


def _layer(found: CallsReport) -> list[Block]:
    layer = found.layer
    if layer is None:
        return []
    lanes = []
    for step in layer.steps:
        at_ns, parts = step.start_ns, []
        for stage, took_ns in zip(ALL_STAGES, stage_times(step.call), strict=True):
            if took_ns is not None:
                parts.append(Stripe(stage.name, took_ns / NS_PER_MS, None, stage.colour))
        name, moved = f"{step.call.number} {method_name(step.call.method)}", _mb(step.call.moved_bytes)
        lanes.append(Lane(name, at_ns / NS_PER_MS, parts, (moved,)))
    words = f"{len(layer.steps)} calls that come {layer.repeats} times one after the other; the one of"
    how = "" if layer.starts_known else "; the log has no starts, so calls are drawn end to end"
    return [
        Waterfall("layer-time", "A layer, call by call", "ms", lanes, layer.total_ns / NS_PER_MS),
        Note(f"{words} median time{how}"),
    ]


def _series(found: CallsReport) -> Series:
    calls, x = found.course, [one.number for one in found.course]
    times = [*zip(*map(stage_times, calls), strict=True)]
    lines = [
        Line(
            stage.name,
            x,
            [None if took is None else took / NS_PER_MS for took in times[place]],
            stage.colour,
            "area",
        )
        for place, stage in enumerate(ALL_STAGES)
        if found.overall.stages_ns[place]
    ]
    speeds = [None if (speed := throughput(one)) is None else speed / MIB for one in calls]
    some = "" if len(calls) == found.overall.calls else ", the shortest and the longest call of each stretch"
    panels = [
        Panel(f"Stages{some}", "ms", lines, begins_at_zero=True),
        Panel("Throughput", "MiB/s", [Line("Throughput", x, speeds, "blue")], begins_at_zero=True),
    ]
    return Series("calls", "Stages and throughput over the calls", panels, "call", (x[0], x[-1]))


def _spread(found: CallsReport) -> Table:
    times = [stage_times(call) for call in found.sample]
    rows: list[Sequence[Cell]] = [
        (stage.name, *(ms(percentile(told, share)) for share in (0.25, 0.5, 0.75, 0.95)), ms(max(told)))
        for place, stage in enumerate(ALL_STAGES)
        if any(told := [took for one in times if (took := one[place]) is not None])
    ]
    many = "" if len(found.sample) == found.overall.calls else f", of {len(found.sample)} calls chosen evenly"
    return Table(("stage", "25 %", "median", "75 %", "95 %", "max"), rows, 5, f"Time by stage{many}, ms")


def _slowest(found: CallsReport) -> Table:
    stages: list[Stage] = [stage for place, stage in enumerate(ALL_STAGES) if found.overall.stages_ns[place]]
    head = ("call", "method", "total ms", *(stage.name for stage in stages), "status")
    rows: list[Sequence[Cell]] = []
    for call in found.slowest:
        times = dict(zip(ALL_STAGES, stage_times(call), strict=True))
        cells = [ms(times[stage]) for stage in stages]
        rows.append(
            (
                Quantity(call.number),
                method_name(call.method),
                ms(call.total_ns),
                *cells,
                status_name(call.status),
            )
        )
    return Table(head, rows, len(head) - 2, "Slowest calls")


def _largest(found: CallsReport) -> Table:
    head = ("call", "method", "sent KiB", "received KiB", "both KiB", "MiB/s")
    rows = [_large(call) for call in found.largest]
    return Table(head, rows, len(head) - 2, "Largest calls")


def _large(call: CallRecord) -> Sequence[Cell]:
    speed = throughput(call)
    return (
        Quantity(call.number),
        method_name(call.method),
        _kb(call.sent_bytes),
        _kb(call.received_bytes),
        _kb(call.moved_bytes),
        Quantity(None if speed is None else speed / MIB, "", 2),
    )


def _served(served: Served) -> list[Block]:
    if not served.methods:
        return []
    head = ("method", "calls", "failed", "mean ms", *PARTS, "other")
    rows: list[Sequence[Cell]] = [
        (
            method_name(name),
            Quantity(one.calls),
            Quantity(one.failed),
            ms(one.total_ns / one.calls),
            *(ms(part / one.calls) for part in one.parts_ns),
        )
        for name, one in served.methods.items()
    ]
    return [Table(head, rows, len(head) - 1)]


def _kb(size: float) -> Quantity:
    return Quantity(size / 1024, "", 2)


def _mb(size: float) -> Quantity:
    return Quantity(size / MIB, "MiB", 2)
