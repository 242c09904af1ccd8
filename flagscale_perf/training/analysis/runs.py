"""The trainings below a directory, side by side: what each was, how fast, and what held it back."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from flagscale_perf.analysis.blocks import Block, Cell, Note, Part, Quantity, Report, Section, Table
from flagscale_perf.analysis.listed import not_read
from flagscale_perf.analysis.listing import Listing
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import finite
from flagscale_perf.spine.records import RUNNING
from flagscale_perf.spine.session import file_names
from flagscale_perf.store.run_file import open_regular
from flagscale_perf.store.runs import LONG_BYTES, Unread
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.analysis.overview import sizes_of
from flagscale_perf.training.analysis.report import Curves
from flagscale_perf.training.analysis.series import (
    FIGURES_OF_RUNS,
    MAX_POINTS,
    Curve,
    curves_of,
    trends_of_runs,
)
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.figures import TABLE
from flagscale_perf.training.rates import SUMMARY_NAMES
from flagscale_perf.training.utilisation import Scale, left_out

MAX_SUMMARY_BYTES = 32 << 20
CHOSEN = 3  # runs that a page draws at first
MAX_DRAWN_POINTS = 20_000  # of all runs together
_MIN_POINTS = 40
_COUNTS = ("intervals", "suspect_intervals")
_RATES = ("iteration_ms", "mfu", "tflops_per_gpu", "tokens_per_s")
_KEY_OF: dict[str, str] = {
    figure.summary_key or figure.key: figure.key for figure in TABLE.figures if figure.in_summary
}


@dataclass(frozen=True)
class Run:
    """One run of the list; None is not known.

    Attributes:
        directory: of its files, as seen from where the list was made; "" for that itself.
        session_id, end_reason, iterations: as in `report.Overview`, also the following ones.
        layout: parallel sizes by "TP", "PP", "DP", "CP", "EP".
        iteration_ms: of a mean one, after the first.
        intervals, suspect_intervals: the mean MFU is of the former without the latter.
        goodput: ETTR.
        findings: how many; None where they were not looked for.
        first_finding: title of the costliest.
        skipped_lines: lines that are no records; None where the file was not read whole.
        file_remarks: what else has to be known of the file; empty where it was not read whole.
    """

    directory: str
    session_id: str
    end_reason: str
    model_family: str | None
    device: str | None
    world_size: int | None
    layout: dict[str, int]
    iterations: int
    iteration_ms: float | None
    mfu: float | None
    tflops_per_gpu: float | None
    tokens_per_s: float | None
    intervals: float | None
    suspect_intervals: float | None
    goodput: float | None
    findings: int | None
    first_finding: str | None
    skipped_lines: int | None
    file_remarks: list[str]


@dataclass(frozen=True)
class RunList:
    """The runs below a directory.

    Attributes:
        runs: by directory, the oldest of each first.
        unread: files and directories that are not in the list, and why.
        points: the trend of each run, as figures by their keys; in no JSON, like the following.
        starts_ns: Unix time of the start of each run.
    """

    directory: str
    runs: list[Run]
    unread: list[Unread]
    points: list[Curves] = field(default_factory=list)
    starts_ns: list[int] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Its content as JSON-ready data."""
        runs, unread = ([asdict(one) for one in each] for each in (self.runs, self.unread))
        return dict(finite({"directory": self.directory, "runs": runs, "unread": unread}))


def list_runs(listing: Listing, is_all_read: bool) -> RunList:
    """Reads what was found; of a long file its summary where there is one, unless all is to be read."""
    listed = RunList(str(listing.directory), [], listing.unread)
    for session in listing.sessions:
        try:
            run, points = _read(session, listing, is_all_read)
        except PerfError as error:
            listing.leave_out(session.path, error)
            continue
        listed.runs.append(run)
        listed.points.append(points)
        listed.starts_ns.append(session.header.start_wall_ns)
    return listed


def _read(session: Session, listing: Listing, is_all_read: bool) -> tuple[Run, Curves]:
    facts = RunFacts.of(session.header.facts)
    known: dict[str, Any] = {
        "directory": listing.place(session),
        "session_id": session.header.session_id,
        "model_family": facts.model_family,
        "device": facts.device or None,
        "world_size": Scale.of(facts).world_size,
        "layout": sizes_of(facts),
    }
    summary = None if is_all_read or session.size_bytes <= LONG_BYTES else _summary(session)
    if summary is None:
        figures, points = listing.row(session, lambda: _of_records(session))
    else:
        figures, points = _of_summary(summary)
    return Run(**known, **figures), points if listing.is_drawn else {}


def _of_records(session: Session) -> tuple[dict[str, Any], Curves]:
    report = read_report(session, with_unjudged=False)
    curves = report.trend.curves
    return {
        "end_reason": report.overview.end_reason,
        "iterations": report.overview.iterations,
        **{name: getattr(report.rates, name) for name in _RATES},
        **{name: getattr(report.figures, name) for name in _COUNTS},
        "goodput": report.goodput.ettr,
        "findings": len(report.findings),
        "first_finding": report.findings[0].title if report.findings else None,
        "skipped_lines": report.reading.skipped,
        "file_remarks": report.reading.remarks,
    }, {name: curves[name] for name in FIGURES_OF_RUNS if name in curves}


def _summary(session: Session) -> dict[str, Any] | None:
    """The summary that the writer left at the end of that session; None if there is none."""
    session_id = session.header.session_id
    try:
        path = session.path.with_name(file_names(session_id)["summary"])
        with os.fdopen(open_regular(path), "rb") as file:
            found = json.loads(file.read(MAX_SUMMARY_BYTES))
    except (PerfError, OSError, ValueError, RecursionError):
        return None
    info = _part(found, "session_info")
    is_of_it = info.get("session_id") == session_id and info.get("end_reason") != RUNNING
    return found if is_of_it and isinstance(info.get("end_reason"), str) else None


def _of_summary(found: dict[str, Any]) -> tuple[dict[str, Any], Curves]:
    info, means, settled = (_part(found, name) for name in ("session_info", "final_statistics", "settled"))
    if settled.get("start_steps"):
        means = means | {name: value for name, value in settled.items() if value is not None}
    rows = found.get("iteration_logs")
    points = [
        {_KEY_OF[name]: value for name, value in row.items() if name in _KEY_OF}
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict)
    ]
    return {
        "end_reason": info["end_reason"],
        "iterations": int(_number(info, "total_iterations") or 0),
        **{name: _number(means, SUMMARY_NAMES[name]) for name in _RATES},
        **{name: _number(means, name) for name in _COUNTS},
        "goodput": _number(_part(found, "goodput"), "ettr"),
        "findings": None,
        "first_finding": None,
        "skipped_lines": None,
        "file_remarks": [],
    }, curves_of(points)


def _part(found: Any, name: str) -> dict[str, Any]:
    part = found.get(name) if isinstance(found, dict) else None
    return part if isinstance(part, dict) else {}


def _number(part: Mapping[str, Any], name: str) -> float | None:
    value = part.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def report_of(listed: RunList) -> Report:
    """The list as every format shows it: trends of the newest runs, a row for each run, what was left out."""
    count = len(listed.runs)
    unjudged = sum(run.findings is None for run in listed.runs)
    long = (
        f"Findings of {unjudged:,} runs with files above {LONG_BYTES >> 20} MiB are not looked for;"
        " --read-all does."
    )
    return Report(
        title=f"{count:,} run{'s' * (count != 1)} in {listed.directory}",
        facts=[Note(long)] if unjudged else [],
        sections=[section for section in _sections(listed) if section.blocks],
        content=listed,
        rows=_rows(listed),
    )


def _sections(listed: RunList) -> list[Section]:
    groups = [f"run{place}" if points else "" for place, points in enumerate(listed.points)]
    drawn = [place for place, group in enumerate(groups) if group]
    age = [(start_ns, run.session_id) for start_ns, run in zip(listed.starts_ns, listed.runs, strict=True)]
    newest = sorted(drawn, key=lambda place: age[place], reverse=True)
    head = ("run", "end", "iterations", "MFU", "tokens/s", "goodput", "findings")
    rows, notes = list(map(_row, listed.runs)), list(map(_note, listed.runs))
    table = Table(head, rows, 5, notes=notes, groups=groups, chosen=[groups[at] for at in newest[:CHOSEN]])
    trends = _trends(listed, {place: groups[place] for place in drawn})
    return [
        Section("runs", "Runs", "", [table] if rows else [Note("No run could be read.")]),
        Section("trend", "Trend", "The runs ticked above, over each other", trends),
        not_read(listed.unread),
    ]


def _trends(listed: RunList, groups: Mapping[int, str]) -> list[Block]:
    """`groups`: of each run that is drawn, by its place."""
    if not groups:
        return []
    most = max(_MIN_POINTS, min(MAX_POINTS, MAX_DRAWN_POINTS // len(groups)))
    curves = [
        Curve(_name(listed.runs[place]), listed.points[place], "blue", group=group)
        for place, group in groups.items()
    ]
    return [trends_of_runs(curves, most)]


def _name(run: Run) -> str:
    return f"{run.directory}/{run.session_id}" if run.directory else run.session_id


def _row(run: Run) -> Sequence[Cell]:
    return (
        run.session_id,
        run.end_reason,
        Quantity(run.iterations),
        Quantity(run.mfu, "share"),
        Quantity(run.tokens_per_s, "", 0),
        Quantity(run.goodput, "share"),
        Quantity(run.findings),
    )


def _note(run: Run) -> Cell:
    size = "?" if run.world_size is None else f"{run.world_size:,}"
    layout = "".join(f", {name} {value}" for name, value in run.layout.items() if value != 1)
    what = f"{run.model_family or 'a training'} on {size} x {run.device or 'unknown device'}{layout}"
    parts: list[Part] = [f"{run.directory}: " if run.directory else "", what]
    if run.first_finding is not None:
        parts.append(f"; first finding: {run.first_finding}")
    if few := left_out(run.intervals, run.suspect_intervals):
        parts.append(f"; MFU {few}")
    if run.skipped_lines:
        parts.append(f"; lines that are no records: {run.skipped_lines:,}")
    parts += [f"; {remark}" for remark in run.file_remarks]
    return tuple(parts)


def _rows(listed: RunList) -> list[Sequence[Any]]:
    rows: list[Sequence[Any]] = [list(Run.__dataclass_fields__)]
    for run in listed.runs:
        layout = " ".join(f"{name}{size}" for name, size in run.layout.items())
        rows.append([*(vars(run) | {"layout": layout, "file_remarks": "; ".join(run.file_remarks)}).values()])
    return rows
