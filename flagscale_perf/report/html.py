"""A report as one HTML file that needs nothing else: style, charts and the library that draws them are in it.

The page's policy (its Content-Security-Policy) names the scripts by their hash and forbids every request.
Text from a run that was taken for a script would still not run, and opening the page stays private.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template
from typing import Any, TypeGuard

from flagscale_perf.analysis.blocks import Block, HeatMap, Report, Section, Series, Waterfall
from flagscale_perf.report.charts import Drawn, chart_of
from flagscale_perf.report.format import shown
from flagscale_perf.report.language import translated
from flagscale_perf.report.markup import Html, join, lines, tag, text
from flagscale_perf.report.page_blocks import HINT, blocks, findings, note, tiles
from flagscale_perf.report.palette import variables
from flagscale_perf.spine.language import say
from flagscale_perf.spine.packages import missing


@dataclass(frozen=True)
class Parts:
    """The parts of a page that depend on its report: text, HTML, and data for plotly.js by chart name."""

    title: str
    menu: Html
    content: Html
    charts: dict[str, Any]


def render(report: Report) -> str:
    """The whole page. Raises PerfError where it has charts and plotly is not installed."""
    return render_page(report, library() if _charts(report) else "")


def render_page(report: Report, drawing_library: str, updates: str = "") -> str:
    """The whole page with this drawing library.

    Args:
        report: what it shows.
        drawing_library: source of plotly.js, or as much of it as the page needs.
        updates: address on the page's own server that has newer `Parts` as JSON; empty without a server.
    """
    script = _asset("page.js")
    parts = parts_of(report)
    return Template(_asset("page.html")).substitute(
        policy=escape(policy(script, drawing_library, with_server=bool(updates))),
        updates=Html(f' data-updates="{escape(updates)}"') if updates else "",
        status=Html('<span id="status" role="status"></span>') if updates else "",
        title=text(parts.title),
        style=Template(_asset("page.css")).substitute(light=variables(0), dark=variables(1)),
        menu=parts.menu,
        content=parts.content,
        charts=_json(parts.charts),
        library=_packed(drawing_library),
        script=script,
    )


def parts_of(report: Report) -> Parts:
    """The parts of a report's page."""
    report = translated(report)
    charts = _charts(report)
    content = [_header(report), tiles(report.tiles)]
    if report.findings is not None:
        title = tag("h2", say("Findings"))
        content.append(tag("section", title, Html("\n"), findings(report.findings), id="findings"))
    return Parts(
        title=f"{shown(report.title)} · flagscale_perf",
        menu=_menu(report),
        content=lines([*content, *_sections(report.sections)]),
        charts=charts,
    )


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def library() -> str:
    """plotly.js, from the Python package. Raises PerfError where that is not installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise missing("plotly", error, "--format html", "take another format") from None
    return str(get_plotlyjs())


def _packed(library: str) -> str:
    """Compressed for page.js, 1.9 MB of 4.8. Without a time stamp: the same text gives the same page."""
    return base64.b64encode(gzip.compress(library.encode(), 9, mtime=0)).decode()


def policy(*scripts: str, with_server: bool) -> str:
    """Allows these scripts only, and requests only to the page's own server, if it has one. plotly.js writes
    styles, and its camera button makes pictures.
    """
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    connect = "connect-src 'self'; " if with_server else ""
    rest = "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; {connect}script-src {hashes}; {rest}"


def _json(content: dict[str, Any]) -> str:
    """JSON in ASCII that cannot end the script element it is put into."""
    made = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return made.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _charts(report: Report) -> dict[str, Any]:
    found = (block for section in report.sections for block in section.blocks)
    return {block.key: chart_of(block) for block in found if _is_drawn(block)}


def _is_drawn(block: Block) -> TypeGuard[Drawn]:
    return isinstance(block, HeatMap | Waterfall) or isinstance(block, Series) and bool(block.panels)


def _menu(report: Report) -> Html:
    places = [(section.key, section.menu) for section in report.sections if section.menu]
    if report.findings is not None:
        places.insert(0, ("findings", say("Findings")))
    return join(tag("a", menu, href=f"#{key}") for key, menu in places)


def _header(report: Report) -> Html:
    state = tag("span", report.state, class_="state bad" if report.tone == "bad" else "state")
    over = tag("p", shown(report.title), " ", state, class_="over") if report.subject else Html("")
    heading = tag("h1", report.subject or shown(report.title), class_="" if report.subject else report.tone)
    return tag("header", over, heading, Html("\n"), blocks(report.head), class_="head")


def _sections(sections: Sequence[Section]) -> Iterator[Html]:
    """Above the first charts it is said how they are used."""
    has_hint = False
    for section in sections:
        is_first = not has_hint and any(map(_is_drawn, section.blocks))
        has_hint |= is_first
        hint = note(HINT) + Html("\n") if is_first else Html("")
        yield _section(section, hint)


def _section(section: Section, hint: Html) -> Html:
    if section.is_folded:
        folded = tag("details", tag("summary", section.title), Html("\n"), hint, blocks(section.blocks))
        return tag("section", folded, id=section.key, class_="folded")
    title = tag("h2", section.title) + Html("\n") if section.title else Html("")
    return tag("section", title, hint, blocks(section.blocks), id=section.key)
