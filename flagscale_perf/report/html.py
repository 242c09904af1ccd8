"""A run as one HTML file that needs nothing else: style, charts and the library that draws them are in it,
and it may ask for nothing.

The page's policy (its Content-Security-Policy) names the scripts by their hash and forbids every request, so
text from a run that got through as a script would still not run, and nobody learns that the page was opened.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from importlib import resources
from typing import Any

from flagscale_perf.analysis.report import Figures, Overview, Report
from flagscale_perf.report import charts
from flagscale_perf.report.findings_html import findings
from flagscale_perf.report.markup import (
    NOTHING,
    Html,
    count,
    duration,
    join,
    milliseconds,
    note,
    pairs,
    percent,
    scaled,
    span,
    tag,
    text,
    unit,
)
from flagscale_perf.report.sections_html import (
    chart,
    goodput,
    hardware,
    memory,
    monitor,
    phases,
    ranks,
    reading,
    run,
    section,
)
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.units import number

_SECTIONS = {
    "findings": "Findings",
    "goodput": "Goodput",
    "trend": "Trend",
    "phases": "Phases",
    "ranks": "Ranks",
    "memory": "Memory",
    "hardware": "Hardware",
    "monitor": "Events",
    "reading": "Run file",
    "run": "Facts",
}
_GOOD_ENDS = ("completed", "running")


def render(report: Report) -> str:
    """The whole page. Raises PerfError where the library that draws is not installed."""
    return render_page(report, _library())


def render_page(report: Report, library: str) -> str:
    """The whole page with so much of a library (JavaScript) in it."""
    drawn = {name: spec for name, spec in _charts(report).items() if spec}
    script = resources.files(__package__).joinpath("page.js").read_text(encoding="utf-8")
    style = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    title = f"{report.overview.session_id} · flagscale_perf"
    head = tag(
        "head",
        Html("\n"),
        tag("meta", charset="utf-8"),
        Html("\n"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(script, library)),
        Html("\n"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        Html("\n"),
        tag("meta", name="color-scheme", content="light dark"),
        Html("\n"),
        tag("title", title),
        Html("\n"),
        tag("style", Html(style)),
        Html("\n"),
    )
    body = tag(
        "body",
        Html("\n"),
        _bar(report.overview),
        tag("main", Html("\n"), _header(report.overview), _tiles(report), *_sections(report, set(drawn))),
        Html("\n"),
        tag("script", Html(_json(drawn)), type="application/json", id="charts"),
        Html("\n"),
        tag("script", Html(_packed(library)), type="text/plain", id="library"),
        Html("\n"),
        tag("script", Html(script)),
        Html("\n"),
    )
    return "<!DOCTYPE html>\n" + tag("html", Html("\n"), head, Html("\n"), body, Html("\n"), lang="en") + "\n"


def _library() -> str:
    """plotly.js as the Python package brings it along."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise PerfError(
            "--format html needs plotly, which is not installed; pip install 'flagscale-perf[report]', or plotly alone"
        ) from None
    return str(get_plotlyjs())


def _packed(library: str) -> str:
    """Compressed: 1.9 MB instead of 4.8. page.js unpacks it. The same text every time, so without the time of
    day.
    """
    return base64.b64encode(gzip.compress(library.encode(), 9, mtime=0)).decode()


def _policy(*scripts: str) -> str:
    """Only these scripts, no request at all. Styles are written by plotly.js, pictures it makes for its
    camera button.
    """
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"


def _json(content: dict[str, Any]) -> str:
    """For a script element: nothing in it can end the element, and it is ASCII."""
    made = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return made.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _charts(report: Report) -> dict[str, charts.Chart]:
    points = report.trend.points
    return {
        "trend": charts.trend(report),
        "phases": charts.phases(report),
        "ranks": charts.ranks(report.ranks, report.stragglers, points)
        if report.ranks and report.ranks.stretches
        else {},
        "memory": charts.memory(points, report.memory),
        "hardware": charts.hardware(points),
    }


def _bar(seen: Overview) -> Html:
    """What stays in sight: navigation and the switch between dark and light."""
    links = (tag("a", title, href=f"#{key}") for key, title in _SECTIONS.items())
    switch = tag("button", "Dark / light", type="button", id="theme")
    return tag("div", tag("nav", *links, aria_label="Sections"), switch, class_="top") + Html("\n")


def _header(seen: Overview) -> Html:
    where = f"{count(seen.world_size) or '?'} × {seen.device or 'unknown device'}"
    state = tag("span", seen.end_reason, class_="state" if seen.end_reason in _GOOD_ENDS else "state bad")
    peak = f"{seen.peak_tflops:g} TFLOP/s" if seen.peak_tflops is not None else "not known"
    facts = [
        ("host", " on ".join(part for part in (seen.host, seen.hostname) if part) or None),
        (
            "model",
            " ".join(part for part in (seen.model_family, seen.script and f"({seen.script})") if part)
            or None,
        ),
        ("devices", where),
        ("parallel", ", ".join(f"{name} {size}" for name, size in seen.parallel.items()) or None),
        ("data type", seen.dtype),
        ("FLOPs convention", seen.flops_convention),
        ("peak of a device", f"{peak} ({seen.peak_source})" if seen.peak_source else peak),
        ("iterations", _iterations(seen)),
        ("time", f"{seen.started} to {seen.ended}"),
    ]
    title = tag("h1", f"{seen.model_family or 'Training'} on {where}")
    over = tag("p", f"Run {seen.session_id} ", state, class_="over")
    return tag("header", over, title, Html("\n"), pairs(facts), class_="head") + Html("\n")


def _iterations(seen: Overview) -> str:
    asked = "" if seen.train_iters is None else f" of {seen.train_iters:,}"
    return (
        f"{seen.iterations:,} ({span(seen.first_iteration, seen.last_iteration)}){asked}"
        if seen.iterations
        else "none finished"
    )


def _tiles(report: Report) -> Html:
    figures, bar, held, device = report.figures, report.goodput, report.memory, report.hardware
    unknown_peak = "no peak known" if report.overview.peak_tflops is None else ""
    tiles = [
        _tile("MFU", percent(figures.mfu), unknown_peak or report.overview.flops_convention or ""),
        _tile("HFU", percent(figures.hfu), unknown_peak or "recomputation included"),
        _tile("TFLOPS per GPU", _plain(figures.tflops_per_gpu, 1), _range(figures)),
        _tile("Tokens/s", _plain(figures.tokens_per_s, 0), f"{number(figures.samples_per_s, 1)} samples/s"),
        _tile(
            "Iteration, p50",
            milliseconds(figures.p50_ms),
            f"p95 {milliseconds(figures.p95_ms) or NOTHING}, max {milliseconds(figures.max_ms) or NOTHING}",
        ),
        _tile("Goodput (ETTR)", percent(bar.ettr), f"of {duration(bar.wall_s)}"),
        _tile(
            "Peak memory",
            unit(held.peak_gb, 1, "GB"),
            f"of {unit(held.device_gb, 1, 'GB')}" if held.device_gb else "not read",
        ),
        _tile(
            "Energy",
            scaled(device.energy_j, "J"),
            f"{number(device.power_w, 0)} W, rank 0's device" if device.power_w else "not read",
        ),
    ]
    warning = ""
    if figures.suspect_intervals:
        warning = note(
            f"{figures.suspect_intervals:,} intervals are above the peak and in no average: check --perf-peak-tflops and the data type."
        )
    return tag("div", *tiles, class_="tiles") + Html("\n") + text(warning)


def _tile(title: str, value: str | None, small: str) -> Html:
    lines = (
        tag("p", words, class_=kind)
        for words, kind in ((title, "small"), (value or NOTHING, "value"), (small, "small"))
    )
    return tag("div", *lines, class_="tile") + Html("\n")


def _plain(value: float | None, decimals: int) -> str | None:
    return None if value is None else f"{value:,.{decimals}f}" if value >= 1 else number(value, decimals)


def _range(figures: Figures) -> str:
    return f"intervals {number(figures.min_tflops_per_gpu, 1)} to {number(figures.max_tflops_per_gpu, 1)}"


def _sections(report: Report, drawn: set[str]) -> list[Html]:
    content = {
        "findings": findings(report.findings, report.unjudged),
        "goodput": goodput(report.goodput),
        "trend": _trend(report, "trend" in drawn),
        "phases": phases(report.phases, "phases" in drawn),
        "ranks": ranks(report.ranks, report.stragglers),
        "memory": memory(report.memory, "memory" in drawn),
        "hardware": hardware(report.hardware, "hardware" in drawn),
        "monitor": monitor(report.monitor),
        "reading": reading(report.reading, report.overview.missing),
        "run": run(report.overview, report.files),
    }
    return [section(key, title, content[key]) for key, title in _SECTIONS.items()]


def _trend(report: Report, has_chart: bool) -> Html:
    trend, figures = report.trend, report.figures
    if not has_chart:
        return note("No trend: no interval after the warm-up is finished yet.")
    shown, warm = len(trend.points), milliseconds(figures.first_iteration_ms)
    words = [
        f"{shown:,} of {trend.intervals:,} intervals." if shown < trend.intervals else f"{shown:,} intervals."
    ]
    words.append(f"The first iteration ({warm or 'not finished'}) is left out.")
    if trend.slow_step_count:
        words.append(
            f"{trend.slow_step_count:,} slow steps took {duration(trend.slow_excess_s)} longer than usual."
        )
    words.append("Drag to zoom all charts to the same iterations; double-click for everything.")
    totals = [
        ("trained", f"{figures.samples:,} samples, {figures.tokens:,} tokens"),
        ("skipped", f"{figures.skipped_samples:,} samples" if figures.skipped_samples else None),
        ("model FLOPs", scaled(figures.model_flops, "FLOP")),
        ("hardware FLOPs", scaled(figures.hardware_flops, "FLOP")),
        ("training", duration(figures.train_s)),
        ("evaluation", duration(figures.eval_s)),
        ("checkpoints", duration(figures.checkpoint_s)),
    ]
    return join(
        [chart("trend", "Throughput and iteration time over the run"), note(" ".join(words)), pairs(totals)]
    )
