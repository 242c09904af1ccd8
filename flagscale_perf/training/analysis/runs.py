"""The trainings below a directory, side by side: what each was, how fast, and what held it back."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from flagscale_perf.analysis.job_report import findings_of
from flagscale_perf.analysis.listing import Listing
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import finite
from flagscale_perf.spine.records import RUNNING
from flagscale_perf.spine.session import file_names, page_name
from flagscale_perf.store.run_file import open_regular
from flagscale_perf.store.runs import LONG_BYTES, Unread
from flagscale_perf.training.analysis import settings
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.analysis.overview import sizes_of
from flagscale_perf.training.analysis.report import Curves
from flagscale_perf.training.analysis.series import FIGURES_OF_RUNS, curves_of
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.figures import TABLE
from flagscale_perf.training.rates import SUMMARY_NAMES
from flagscale_perf.training.utilisation import Scale

MAX_SUMMARY_BYTES = 32 << 20
_COUNTS = ("intervals", "suspect_intervals")
_RATES = ("iteration_ms", "mfu", "tflops_per_gpu", "tokens_per_s")
_START = "start"
_FIGURES = {
    "end_reason",
    "iterations",
    "goodput",
    "findings",
    "first_finding",
    "skipped_lines",
    "loss",
    *_COUNTS,
    *_RATES,
}
_VALUES = (*("directory", "session_id", "name", "model_family", "device", "world_size", "page"), *_FIGURES)
_MOST_NAMED = 8
_BEST_IS_HIGH = {"mfu", "tflops_per_gpu", "tokens_per_s", "goodput", "iterations"}
_KEY_OF: dict[str, str] = {
    figure.summary_key or figure.key: figure.key for figure in TABLE.figures if figure.in_summary
}


@dataclass(frozen=True)
class Run:
    """One training of the list; None is not known.

    Attributes:
        directory: of its files, as seen from where the list was made; "" for that itself.
        session_id, end_reason, iterations: as in `report.Overview`, also the following ones.
        layout: parallel sizes by "TP", "PP", "DP", "CP", "EP".
        iteration_ms: of a mean one, after the first.
        intervals, suspect_intervals: the mean MFU is of the former without the latter.
        goodput: ETTR.
        loss: the last that the host logged.
        findings: how many; None where they were not looked for.
        first_finding: title of the costliest.
        skipped_lines: lines that are no records; None where the file was not read whole.
        file_remarks: what else has to be known of the file; empty where it was not read whole.
        name: by --perf-run-name or the host's own option.
        beside: what other instruments recorded of the same job, by their names.
        page: file of its report as a page, as seen from there.
        settings: its configuration by key.
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
    name: str | None
    beside: list[str]
    page: str | None
    settings: dict[str, Any]
    loss: float | None = None

    @property
    def values(self) -> Mapping[str, Any]:
        """All that can be chosen and sorted by."""
        return self.settings | vars(self)


@dataclass(frozen=True)
class RunList:
    """The runs below a directory.

    Attributes:
        runs: in the order asked for, else the newest last.
        unread: files and directories that are not in the list, and why.
        points: the trend of each run, as figures by their keys; in no JSON, like the following.
        starts_ns: Unix time of the start of each run.
    """

    directory: str
    runs: list[Run]
    unread: list[Unread]
    points: list[Curves] = field(default_factory=list)
    starts_ns: list[int] = field(default_factory=list)

    @property
    def differs(self) -> list[str]:
        """Keys of the configuration in which the runs differ."""
        return settings.differing([run.settings for run in self.runs])

    def as_dict(self) -> dict[str, Any]:
        """Its content as JSON-ready data; of the configuration what differs."""
        keys, unread = self.differs, [asdict(one) for one in self.unread]
        runs = [vars(one) | {"settings": {key: one.settings.get(key) for key in keys}} for one in self.runs]
        return dict(finite({"directory": self.directory, "differs": keys, "runs": runs, "unread": unread}))

    def ordered(self, key: str) -> RunList:
        """The best first of a rate, else the lowest; unknown ones last; of equal ones the newest last."""
        rows = [*zip(self.runs, self.points, self.starts_ns, strict=True)]
        rows.sort(key=lambda row: (row[2], row[0].directory, row[0].session_id))
        if key != _START:
            rows.sort(key=lambda row: _order(row[0].values.get(key), key in _BEST_IS_HIGH))
        runs, points = [row[0] for row in rows], [row[1] for row in rows]
        return RunList(self.directory, runs, self.unread, points, [row[2] for row in rows])


def rate_of(runs: Sequence[Run]) -> str:
    """The figure that they are ranked by: MFU, which holds for any model and size; without it tokens/s."""
    return "mfu" if any(run.mfu is not None for run in runs) else "tokens_per_s"


def _order(value: Any, is_best_high: bool) -> tuple[int, float, str]:
    """Numbers before texts, and both before what is not known."""
    if isinstance(value, int | float):
        return 0, -value if is_best_high else value, ""
    return (2, 0.0, "") if value is None else (1, 0.0, settings.shown(value))


def list_runs(listing: Listing, is_all_read: bool) -> RunList:
    """Reads what was found; of a long file its summary where there is one, unless all is to be read. Raises
    PerfError for a condition or an order by a key that no run has, and where no run is chosen.
    """
    listed = RunList(str(listing.directory), [], listing.unread)
    known = {session.path: _known(session, listing) for session in listing.sessions}
    names = dict[str, Any]()
    for one in known.values():
        names |= one["settings"]
    keys = [*names, *_VALUES, _START]
    conditions = [settings.Condition(text, keys) for text in listing.where]
    order = (
        _START if listing.sort is None else settings.canonical(listing.sort, keys, f"--sort {listing.sort}")
    )
    for session in listing.sessions:
        own = known[session.path]
        if not all(one.fits(own["settings"] | own) for one in conditions if one.key not in _FIGURES):
            continue  # without its file being read
        try:
            run, points = _read(session, own, listing, is_all_read)
        except PerfError as error:
            listing.leave_out(session.path, error)
            continue
        if all(one.fits(run.values) for one in conditions):
            listed.runs.append(run)
            listed.points.append(points)
            listed.starts_ns.append(session.header.start_wall_ns)
    if conditions and not listed.runs:
        raise _none_fits(conditions, [one["settings"] | one for one in known.values()])
    return listed.ordered(order)


def _none_fits(conditions: Sequence[settings.Condition], runs: Sequence[Mapping[str, Any]]) -> PerfError:
    for one in conditions:
        if one.key not in _FIGURES and not any(map(one.fits, runs)):
            there = sorted({settings.shown(values.get(one.key)) for values in runs})
            some = ", ".join(there[:_MOST_NAMED]) + " ..." * (len(there) > _MOST_NAMED)
            return PerfError(f"--where {one.text!r}: no run has that; {one.key} is {some}")
    return PerfError(f"--where {' and '.join(repr(one.text) for one in conditions)}: no run is like that")


def _known(session: Session, listing: Listing) -> dict[str, Any]:
    """What is known of a run before its records are read."""
    header = session.header
    facts, page = RunFacts.of(header.facts), session.path.with_name(page_name(header.session_id))
    return {
        "directory": listing.place(session),
        "session_id": header.session_id,
        "model_family": facts.model_family,
        "device": facts.device or None,
        "world_size": Scale.of(facts).world_size,
        "layout": sizes_of(facts),
        "name": settings.name_of(header),
        "beside": listing.beside(session),
        "page": listing.relative(page) if page.is_file() else None,
        "settings": settings.settings_of(header, facts),
    }


def _read(
    session: Session, known: Mapping[str, Any], listing: Listing, is_all_read: bool
) -> tuple[Run, Curves]:
    job = listing.job(session)
    is_long = any(one.size_bytes > LONG_BYTES for one in job)
    summary = _summary(session) if is_long and not is_all_read else None
    if summary is None:
        figures, points = listing.row(session, lambda: _of_records(session, job[1:]))
    else:
        figures, points = _of_summary(summary)
    return Run(**known, **figures), points if listing.is_drawn else {}


def _last_loss(curves: Curves) -> float | None:
    losses = [row[1] for row in curves.get("loss", ()) if row[1] is not None]
    return losses[-1] if losses else None


def _of_records(session: Session, beside: Sequence[Session]) -> tuple[dict[str, Any], Curves]:
    report = read_report(session, with_unjudged=False)
    curves, found = report.trend.curves, findings_of(session, beside) if beside else report.findings
    return {
        "end_reason": report.overview.end_reason,
        "iterations": report.overview.iterations,
        **{name: getattr(report.rates, name) for name in _RATES},
        **{name: getattr(report.figures, name) for name in _COUNTS},
        "goodput": report.goodput.ettr,
        "findings": len(found),
        "first_finding": found[0].title if found else None,
        "skipped_lines": report.reading.skipped,
        "file_remarks": report.reading.remarks,
        "loss": _last_loss(curves),
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
    rows = [
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
        "loss": _last_loss(curves := curves_of(rows)),
    }, curves


def _part(found: Any, name: str) -> dict[str, Any]:
    part = found.get(name) if isinstance(found, dict) else None
    return part if isinstance(part, dict) else {}


def _number(part: Mapping[str, Any], name: str) -> float | None:
    value = part.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
