"""Compares sessions of calls: what a change gained, by stage and by method, and whether that is more than
noise.
"""

from __future__ import annotations

from collections.abc import Sequence

from flagscale_perf.analysis.blocks import Section, bars_to_scale
from flagscale_perf.analysis.compare.compare import CompareOptions, Comparison, Terms
from flagscale_perf.analysis.compare.driver import MAX_UNITS, Compared, Units, used_parts
from flagscale_perf.analysis.compare.judge import Row
from flagscale_perf.analysis.session import Session
from flagscale_perf.rpc.analysis.units import CALL, STAGE, SessionUnits, read_units
from flagscale_perf.rpc.stages import ALL_STAGES
from flagscale_perf.spine.errors import PerfError

LABELS = {  # and decimals
    "mean": ("mean, {unit}", 3),
    "p95": ("p95, {unit}", 3),
    "calls": ("calls", 1),
    "moved_mib": ("sent and received, MiB", 2),
}
_MEASURED = (
    "latency_ns",
    "copy_bytes_per_s",
    "epoch",
    "client",
)  # at the start, of the machine: no configuration


def compare(base: Sequence[Session], new: Sequence[Session], options: CompareOptions) -> Comparison:
    """Compares the sessions of one side with those of the other. Raises PerfError if one cannot be read or
    compared.
    """
    read = [read_units(session, options.warmup) for session in (*base, *new)]
    if len({one.kind for one in read}) > 1:
        raise PerfError(
            "the calls of one run form layers and those of another do not; compare like with like"
        )
    runs = used_parts([_units(session, one) for session, one in zip((*base, *new), read, strict=True)])
    terms = _terms(read[0].kind)
    compared = Compared(runs[: len(base)], runs[len(base) :], terms, options)
    return compared.comparison(charts=[compared.trend(), _stages(compared.rows)])


def _terms(noun: str) -> Terms:
    remarks = [f"stages and methods are of a {noun}: all intervals together hold with 95 %"]
    if noun == CALL:
        remarks.append("no pattern of calls is repeated in every run, so single calls are compared")
    return Terms(noun, MAX_UNITS, LABELS, remarks)


def _units(session: Session, read: SessionUnits) -> Units:
    source = read.source
    facts = {name: fact for name, fact in source.facts().as_dict().items() if name not in _MEASURED}
    skipped, title = source.reading().skipped, source.title()
    return Units.of(session, read.units, read.left_out, facts, skipped_lines=skipped, title=title)


def _stages(rows: Sequence[Row]) -> Section:
    by_name = {row.name: row for row in rows}
    parts = {
        side.upper(): [
            (stage.name, getattr(by_name[STAGE + stage.name], side) or 0.0, stage.colour)
            for stage in ALL_STAGES
            if STAGE + stage.name in by_name
        ]
        for side in ("base", "new")
    }
    return Section("stages", "Stages", "Stages side by side", bars_to_scale("ms", parts))
