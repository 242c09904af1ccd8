"""The list of trainings as blocks: a row for each, or for all of one configuration."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Any

from flagscale_perf.analysis.blocks import Block, Cell, FileLink, Note, Part, Quantity, Report, Section, Table
from flagscale_perf.analysis.blocks import Sparkline as Spark
from flagscale_perf.analysis.listed import not_read
from flagscale_perf.analysis.listing import Listing
from flagscale_perf.spine.averages import mean, mean_known
from flagscale_perf.store.runs import LONG_BYTES
from flagscale_perf.training.analysis import settings
from flagscale_perf.training.analysis.report import Curves
from flagscale_perf.training.analysis.runs import Run, RunList, list_runs, rate_of
from flagscale_perf.training.analysis.series import MAX_POINTS, Curve, trends_of_runs
from flagscale_perf.training.utilisation import left_out

MAX_DRAWN_POINTS = 20_000  # of all runs together
_MIN_POINTS, _SPARK_POINTS = 40, 48
_ROWS = tuple(name for name in Run.__dataclass_fields__ if name != "settings")


@dataclass(frozen=True)
class _Configurations:
    """The runs, and the rows of their configurations behind a head."""

    listed: RunList
    rows: Sequence[Sequence[Any]]

    def as_dict(self) -> Mapping[str, Any]:
        """The list with its configurations."""
        head, *rows = self.rows
        own = [dict(zip(map(str, head), row, strict=True)) for row in rows]
        return self.listed.as_dict() | {"configurations": own}


def listed(listing: Listing, is_all_read: bool) -> Report:
    """The trainings of a listing. Raises PerfError for conditions that cannot be."""
    origin = listing.directory if listing.origin is None else listing.origin
    way = os.path.relpath(listing.directory, origin)
    found, to_pages = list_runs(listing, is_all_read), "" if way == "." else f"{way}/"
    return report_of(found, to_pages, listing.is_grouped, listing.sort is not None)


def report_of(
    listed: RunList, to_pages: str = "", is_grouped: bool = False, is_sorted: bool = False
) -> Report:
    """The list as every format shows it: a row for each run, what was left out, trends over each other.

    Args:
        listed: the runs.
        to_pages: the way from where it is written to the directory that is listed.
        is_grouped: a row for each configuration, the fastest first
        is_sorted: unless the runs are in an order that was asked for.
    """
    count, unjudged = len(listed.runs), sum(run.findings is None for run in listed.runs)
    long = (
        f"Findings of {unjudged:,} runs with files above {LONG_BYTES >> 20} MiB are not looked for;"
        " --read-all does."
    )
    keys = listed.differs
    groups = configurations(listed.runs, keys) if is_grouped else []
    if not is_sorted:
        rate = rate_of(listed.runs)
        groups.sort(key=lambda group: -(mean_known([getattr(run, rate) for run in group]) or 0.0))
    of = f" of {len(groups):,} configuration{'s' * (len(groups) != 1)}" if is_grouped else ""
    sections = _grouped(groups, keys) if is_grouped else _sections(listed, keys, to_pages)
    rows = _group_rows(groups, keys) if is_grouped else _rows(listed.runs, keys)
    return Report(
        title=f"{count:,} run{'s' * (count != 1)}{of} in {listed.directory}",
        facts=[Note(text) for text in [*_common(listed.runs, keys), *([long] if unjudged else [])]],
        sections=[section for section in [*sections, not_read(listed.unread)] if section.blocks],
        content=_Configurations(listed, rows) if is_grouped else listed,
        rows=rows,
    )


def configurations(runs: Sequence[Run], keys: Sequence[str]) -> list[list[Run]]:
    """The runs that differ in seeds at most, in the order of the first of each."""
    found: dict[tuple[str, ...], list[Run]] = {}
    own = [key for key in keys if not settings.is_seed(key)]
    for run in runs:
        found.setdefault(tuple(settings.shown(run.settings.get(key)) for key in own), []).append(run)
    return [*found.values()]


def _common(runs: Sequence[Run], keys: Sequence[str]) -> list[str]:
    """What all of several runs are."""
    if len(runs) < 2:
        return []
    run, layout = runs[0], runs[0].layout
    sizes = [f"{name} {size}" for name, size in layout.items() if size != 1 and _is_common(name, runs)]
    size = None if "world_size" in keys else run.world_size
    device = None if "device" in keys else run.device
    family = None if "model_family" in keys else run.model_family
    devices = f"{size:,} x {device}" if size and device else device or (f"{size:,} devices" if size else "")
    words = ", ".join(filter(None, [family, devices, *sizes]))
    return [f"all of them: {words}"] * bool(words)


def _is_common(name: str, runs: Sequence[Run]) -> bool:
    return len({run.layout.get(name) for run in runs}) == 1


def _sections(listed: RunList, keys: Sequence[str], to_pages: str) -> list[Section]:
    runs = listed.runs
    groups = [f"run{place}" if points else "" for place, points in enumerate(listed.points)]
    drawn = [place for place, group in enumerate(groups) if group]
    shown, more = [*keys[: settings.MOST_KEYS]], keys[settings.MOST_KEYS :]
    trend = ["over the run"] * bool(drawn)
    head = (
        *("run", *_heads(shown), "end", "MFU", "tokens/s", *trend),
        *("goodput", "iterations", "findings"),
    )
    rows = [
        (
            _name(run),
            *(settings.shown(run.settings.get(key)) for key in shown),
            run.end_reason,
            Quantity(run.mfu, "share"),
            Quantity(run.tokens_per_s, "", 0),
            *([_sparkline(listed.points[place])] if trend else []),
            Quantity(run.goodput, "share"),
            Quantity(run.iterations),
            Quantity(run.findings),
        )
        for place, run in enumerate(runs)
    ]
    notes = [_note(run, to_pages) for run in runs]
    picked = [groups[place] for place in _drawn_first(listed, drawn)]
    table: Block = Table(head, rows, 5 + len(trend), notes=notes, groups=groups, chosen=picked)
    trends = _trends(listed, {place: groups[place] for place in drawn})
    about = "The runs ticked above, over each other: at first the fastest, the newest and the slowest"
    others = [Note(f"they differ in {', '.join(more)}, too: CSV and JSON have these")] if more else []
    return [
        Section("runs", "Runs", "", [table, *others] if rows else [Note("No run could be read.")]),
        Section("trend", "Trend", about, trends),
    ]


def _heads(keys: Sequence[str]) -> list[str]:
    return [settings.HEADS.get(key, key) for key in keys]


def _drawn_first(listed: RunList, drawn: Sequence[int]) -> list[int]:
    """Of those that can be drawn the fastest, the newest and the slowest."""
    speeds = [getattr(run, rate_of(listed.runs)) or 0.0 for run in listed.runs]
    ranked = sorted((place for place in drawn if speeds[place]), key=lambda place: speeds[place])
    newest = sorted(drawn, key=lambda place: listed.starts_ns[place])
    return [*dict.fromkeys([*ranked[-1:], *newest[-1:], *ranked[:1], *reversed(newest)])][:3]


def _trends(listed: RunList, groups: Mapping[int, str]) -> list[Block]:
    """`groups`: of each run that is drawn, by its place."""
    if not groups:
        return []
    most = max(_MIN_POINTS, min(MAX_POINTS, MAX_DRAWN_POINTS // len(groups)))
    times = Counter(map(_name, listed.runs))
    labels = [_name(run) if times[_name(run)] == 1 else _place(run) for run in listed.runs]
    curves = [
        Curve(labels[place], listed.points[place], "blue", group=group) for place, group in groups.items()
    ]
    return [trends_of_runs(curves, most)]


def _sparkline(points: Curves) -> Cell:
    values = [value for _, value, *_ in points.get("tokens_per_s", ())]
    step = -(-len(values) // _SPARK_POINTS) or 1
    return Spark(values[::step], "") if values else None


def _name(run: Run) -> str:
    return run.name or run.directory or run.session_id


def _place(run: Run) -> str:
    return f"{run.directory}/{run.session_id}" if run.directory else run.session_id


def _note(run: Run, to_pages: str) -> Cell:
    parts: list[Part] = [
        "/".join(part for part in (run.directory, run.session_id) if part and part != _name(run)),
        "" if run.page is None else FileLink("its page", to_pages + run.page),
        f"beside it: {', '.join(run.beside)}" if run.beside else "",
        "" if run.first_finding is None else f"first finding: {run.first_finding}",
        f"MFU {few}" if (few := left_out(run.intervals, run.suspect_intervals)) else "",
        f"lines that are no records: {run.skipped_lines:,}" if run.skipped_lines else "",
        *run.file_remarks,
    ]
    said = [part for part in parts if part]
    return tuple(each for part in said for each in ("; ", part))[1:] or None


def _rows(runs: Sequence[Run], keys: Sequence[str]) -> list[Sequence[Any]]:
    """Raw values: what is known of each run, and the keys in which they differ."""
    others = [key for key in keys if key not in _ROWS]
    rows: list[Sequence[Any]] = [[*_ROWS, "instrument", *others]]
    for run in runs:
        own = vars(run) | {
            "layout": " ".join(f"{name}{size}" for name, size in run.layout.items()),
            "file_remarks": "; ".join(run.file_remarks),
            "beside": " ".join(run.beside),
        }
        differing = (_raw(run.settings.get(key)) for key in others)
        rows.append([*(own[name] for name in _ROWS), "training", *differing])
    return rows


def _raw(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def _grouped(groups: Sequence[Sequence[Run]], keys: Sequence[str]) -> list[Section]:
    shown = [key for key in keys if not settings.is_seed(key)]
    head = (
        *(_heads(shown[: settings.MOST_KEYS]) or ["configuration"]),
        *("runs", "MFU", "tokens/s", "spread", "lowest", "highest", "goodput"),
    )
    rows: list[Sequence[Cell]] = [
        (
            *([settings.shown(group[0].settings.get(key)) for key in shown[: settings.MOST_KEYS]] or ["all"]),
            Quantity(len(group)),
            Quantity(mean_known([run.mfu for run in group]), "share"),
            *(Quantity(value, unit, decimals) for value, unit, decimals in _speeds(group)),
            Quantity(mean_known([run.goodput for run in group]), "share"),
        )
        for group in groups
    ]
    table = Table(head, rows, 7, notes=[_some(group) for group in groups])
    about = "spread: standard deviation of tokens/s between runs that differ in seeds at most"
    blocks: list[Block] = [table, Note(about)] if rows else [Note("No run could be read.")]
    return [Section("runs", "Configurations", "", blocks)]


def _some(group: Sequence[Run]) -> str:
    names = dict.fromkeys(run.name or _place(run) for run in group)
    return next(iter(names)) + (f" and {len(names) - 1:,} more" if len(names) > 1 else "")


def _speeds(group: Sequence[Run]) -> list[tuple[float | None, str, int]]:
    """Mean tokens/s, their spread, lowest and highest."""
    known = [run.tokens_per_s for run in group if run.tokens_per_s is not None]
    spread = stdev(known) / mean(known) if len(known) > 1 and mean(known) else None
    ends = (min(known), max(known)) if known else (None, None)
    return [(mean_known(known), "", 0), (spread, "share", 2), (ends[0], "", 0), (ends[1], "", 0)]


def _group_rows(groups: Sequence[Sequence[Run]], keys: Sequence[str]) -> list[Sequence[Any]]:
    shown = [key for key in keys if not settings.is_seed(key)]
    head = ("runs", "mfu", *(f"tokens_per_s{end}" for end in ("", "_spread", "_lowest", "_highest")))
    return [
        [*shown, *head],
        *(
            [
                *(_raw(group[0].settings.get(key)) for key in shown),
                *(len(group), mean_known([run.mfu for run in group])),
                *(value for value, _, _ in _speeds(group)),
            ]
            for group in groups
        ),
    ]
