"""Compares sessions of calls: what a change gained, by stage and by method, and whether that is more than
noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from flagscale_perf.analysis.blocks import Report, Section, StackedBar, Stripe
from flagscale_perf.analysis.compare import blocks as comparison
from flagscale_perf.analysis.compare import bootstrap, sides
from flagscale_perf.analysis.compare.compare import NOISE, CompareOptions, Comparison
from flagscale_perf.analysis.compare.judge import Row
from flagscale_perf.analysis.compare.paired import Paired
from flagscale_perf.rpc.analysis.units import CALL, MAX_UNITS, SessionUnits, Unit, read_units
from flagscale_perf.rpc.figures import MIB, method_name
from flagscale_perf.rpc.stages import ALL_STAGES
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.errors import PerfError

LABELS = {  # and decimals
    "mean": ("mean, {unit}", 3),
    "p95": ("p95, {unit}", 3),
    "calls": ("calls", 1),
    "moved_mib": ("sent and received, MiB", 2),
}
_STAGE, _METHOD = "stage ", "method "


def report_of(result: Comparison) -> Report:
    """The report as blocks, the same for every output format."""
    noun = result.basis
    a_noun = f"a {noun}"
    remarks = [f"stages and methods are of {a_noun}: all intervals together hold with 95 %"]
    if noun == CALL:
        remarks.append("no pattern of calls is repeated in every run, so single calls are compared")
    return comparison.report_of(result, LABELS, remarks, (noun, a_noun))


def compare(base: Sequence[Path], new: Sequence[Path], options: CompareOptions) -> Comparison:
    """Compares the sessions of one side with those of the other. Raises PerfError if one cannot be read or
    compared.
    """
    runs = [read_units(path, options.warmup) for path in (*base, *new)]
    cut = len(base)
    kinds = {run.kind for run in runs}
    if len(kinds) > 1:
        raise PerfError(
            "the calls of one run form layers and those of another do not; compare like with like"
        )
    count = min(len(run.units) for run in runs)
    rows = [run.units[:count] for run in runs]
    judged = Paired(
        runs,
        cut,
        runs[0].kind,
        times=[[unit.total_ns / NS_PER_MS for unit in row] for row in rows],
        parts=_parts(rows),
        left_out=[sides.left_out(run.left_out, len(run.units) - count) for run in runs],
        most=MAX_UNITS,
        noise=NOISE,
        same_run=sides.on_both_sides(runs[:cut], runs[cut:]),
    ).judged(options)
    result = judged.comparison(
        (_side(rows[:cut]), _side(rows[cut:])),
        sides.differences(_configuration(runs[0]), _configuration(runs[cut])),
        _charts(judged.paired, judged.parts),
    )
    return replace(result, first_iteration=rows[0][0].number, last_iteration=rows[0][-1].number)


def _parts(rows: Sequence[Sequence[Unit]]) -> Mapping[str, list[list[float | None]]]:
    """Stages and methods in the units of each run; None if a run lacks the method."""
    methods = sorted({name for row in rows for unit in row for name in unit.methods_ns})
    parts: dict[str, list[list[float | None]]] = {}
    for place, stage in enumerate(ALL_STAGES):
        if any(unit.stages_ns[place] for row in rows for unit in row):
            parts[_STAGE + stage.name] = _each(rows, lambda unit, place=place: unit.stages_ns[place])  # type: ignore[misc]
    for name in methods:
        parts[_METHOD + method_name(name)] = _each(rows, lambda unit, name=name: unit.methods_ns.get(name))  # type: ignore[misc]
    return parts


def _each(rows: Sequence[Sequence[Unit]], value: Callable[[Unit], int | None]) -> list[list[float | None]]:
    return [[None if (ns := value(unit)) is None else ns / NS_PER_MS for unit in row] for row in rows]


def _side(rows: Sequence[Sequence[Unit]]) -> dict[str, float | None]:
    units = [unit for row in rows for unit in row]
    return sides.typical([unit.total_ns / NS_PER_MS for unit in units]) | {
        "calls": bootstrap.mean([float(unit.calls) for unit in units]),
        "moved_mib": bootstrap.mean([unit.moved_bytes / MIB for unit in units]),
    }


def _configuration(run: SessionUnits) -> dict[str, object]:
    """Facts of the session, except measurements: the machine's speed at the start, and the latency."""
    measured = ("latency_ns", "copy_bytes_per_s", "epoch", "client")
    return {name: fact for name, fact in run.facts.as_dict().items() if name not in measured}


def _charts(paired: Paired, parts: Sequence[Row]) -> list[Section]:
    trend = sides.trend(paired.times, paired.cut, "Time", paired.noun)
    bars = [_bar(side, parts) for side in ("base", "new")]
    room = max(sum(part.value or 0.0 for part in bar.parts) for bar in bars)
    drawn = [StackedBar(bar.title, bar.unit, bar.parts, room, in_words=False) for bar in bars]
    return [
        trend,
        Section("stages", "Stages", "Stages side by side", drawn),
    ]


def _bar(side: str, parts: Sequence[Row]) -> StackedBar:
    times = {row.name: getattr(row, side) or 0.0 for row in parts if row.name.startswith(_STAGE)}
    whole = sum(times.values()) or 1.0
    stripes = [
        Stripe(stage.name, time, time / whole, stage.colour)
        for stage in ALL_STAGES
        if (time := times.get(_STAGE + stage.name)) is not None
    ]
    return StackedBar(side.upper(), "ms", stripes)
