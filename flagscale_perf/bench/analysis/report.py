"""Experiments as a report: what every format shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

from flagscale_perf.analysis.blocks import (
    REPORT_VERSION,
    Cell,
    Note,
    Pairs,
    Quantity,
    Report,
    Section,
    Table,
    Tile,
)
from flagscale_perf.analysis.session import Session, tone_of
from flagscale_perf.analysis.verdicts import Verdict, blocks_of
from flagscale_perf.bench.analysis import bandwidth, latency, parallelism
from flagscale_perf.bench.analysis.shown import Shown
from flagscale_perf.bench.analysis.source import COMPLETE, Bench, Part, case_text, read_bench, spread
from flagscale_perf.spine.jsonl import finite

# Every experiment that has a report, in the order of the report.
SHOWN: dict[str, Shown] = {one.name: one for one in (bandwidth.SHOWN, latency.SHOWN, parallelism.SHOWN)}
ROW_HEAD = ("experiment", "figure", "unit", "case", "median", "min", "p95", "repetitions", "why")
NOTHING = "no experiment has measured anything"


@dataclass(frozen=True)
class BenchReport:
    """The whole report of a run file.

    Attributes:
        bench: what was read.
        verdicts, remarks: by experiment.
    """

    bench: Bench
    verdicts: Mapping[str, Sequence[Verdict]]
    remarks: Mapping[str, Sequence[Note]]

    def as_dict(self) -> dict[str, Any]:
        """Its content as JSON-ready data."""
        bench = self.bench
        content = {
            "report_version": REPORT_VERSION,
            "path": str(bench.path),
            "state": bench.state,
            "file_remarks": bench.reading.remarks,
            "environment": bench.header.facts,
            "experiments": {name: self.part(name) for name in bench.parts},
        }
        return dict(finite(content))

    def part(self, name: str) -> dict[str, Any]:
        """One experiment as JSON. Points carry their case, median, min, p95 and number of repetitions."""
        part = self.bench.parts[name]
        return {
            "state": part.state,
            "is_complete": part.is_complete,
            "planned": part.planned,
            "settings": dict(part.settings),
            "points": [
                {"figure": point.figure, "unit": point.unit}
                | dict(point.case)
                | spread(point.samples)._asdict()
                | {"samples": point.samples}
                for point in part.points
            ],
            "figures": [
                {"figure": one.figure, "unit": one.unit, **one.case, "value": one.value, "why": one.why}
                for one in part.figures
            ],
            **SHOWN[name].content(part),
            "verdicts": [asdict(one) for one in self.verdicts[name]],
            "remarks": [asdict(one) for one in self.remarks[name]],
        }


def read_report(session: Session) -> BenchReport:
    """Reads the experiments in `SHOWN`. Raises PerfError for a file that cannot be read."""
    bench = read_bench(session)
    parts = {name: part for name, part in bench.parts.items() if name in SHOWN}
    return BenchReport(
        replace(bench, parts=parts),
        {name: SHOWN[name].verdicts(part) for name, part in parts.items()},
        {name: SHOWN[name].remarks(part) for name, part in parts.items()},
    )


def report_of(found: BenchReport) -> Report:
    """The report as blocks, the same for every output format."""
    bench = found.bench
    header = bench.header
    parts = list(bench.parts.values())
    measured = any(part.points or part.figures for part in parts)
    return Report(
        title=f"Experiments of session {header.session_id}",
        subject=subject_of(
            [f"{part.name} ({part.count})" for part in parts], parts, header.facts.get("machine")
        ),
        state=bench.state,
        tone=tone_of(bench.state),
        facts=[Pairs(_facts(header.facts, bench.begun)), *_notes(found)],
        tiles=_tiles(found),
        sections=_sections(found),
        content=found,
        rows=rows_of(bench),
        reading=bench.reading,
        complaint="" if measured else f"{bench.path}: {NOTHING}",
    )


def subject_of(what: Sequence[str], parts: Sequence[Part], machine: object) -> str:
    """`latency (12 points), qwen3, vllm on node`: the model and vLLM where one was served."""
    served = []
    for part in parts:
        if "model" in part.settings:
            served += [str(part.settings["model"]), "vllm"]
    return ", ".join([*what, *dict.fromkeys(served)]) + (f" on {machine}" if machine else "")


def _facts(facts: Mapping[str, Any], begun: str) -> list[tuple[str, str | None]]:
    return [
        ("begun", begun),
        ("machine", str(facts.get("machine"))),
        ("processor", f"{facts.get('processor') or 'unknown'}, {facts.get('cores')} cores"),
        ("versions", _joined(facts.get("versions"), " ")),
        ("variables", _joined(facts.get("variables"), "=")),
    ]


def _joined(found: object, between: str) -> str | None:
    if not isinstance(found, dict) or not found:
        return None
    return ", ".join(f"{name}{between}{value}" for name, value in found.items())


def _notes(found: BenchReport) -> list[Note]:
    partial = [
        Note(f"{part.name} is {part.state} ({part.count})", "warn")
        for part in found.bench.parts.values()
        if part.state != COMPLETE
    ]
    return [*partial, *chain(*found.remarks.values())]


def _tiles(found: BenchReport) -> list[Tile]:
    return [
        Tile(one.name, Quantity(one.value, one.unit), one.verdict)
        for verdicts in found.verdicts.values()
        for one in verdicts
        if one.value is not None
    ]


def _sections(found: BenchReport) -> list[Section]:
    made = [one for name, part in found.bench.parts.items() for one in SHOWN[name].sections(part)]
    verdicts = [one for each in found.verdicts.values() for one in each]
    missing = _missing(found.bench)
    return [
        section
        for section in (
            *made,
            Section("verdicts", "Verdicts", "By the requirement's thresholds", blocks_of(verdicts)),
            Section(
                "missing", "Not measured", "What was not measured, and why", [missing] if missing else []
            ),
        )
        if section.blocks
    ]


def _missing(bench: Bench) -> Table | None:
    rows: list[Sequence[Cell]] = [
        (part.name, one.figure, case_text(one.case), one.why)
        for part in bench.parts.values()
        for one in part.figures
        if one.value is None
    ]
    return Table(("experiment", "figure", "case", "why"), rows) if rows else None


def rows_of(bench: Bench) -> Iterable[Sequence[object]]:
    """Header and rows of the CSV: each point and each figure."""
    yield ROW_HEAD
    for part in bench.parts.values():
        for point in part.points:
            yield (part.name, point.figure, point.unit, case_text(point.case), *spread(point.samples), "")
        for one in part.figures:
            yield (part.name, one.figure, one.unit, case_text(one.case), one.value, None, None, None, one.why)
