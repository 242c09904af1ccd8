"""A report as one HTML file that needs nothing else: style, charts and the library that draws them are in it,
and it may ask for nothing.

The page's policy (its Content-Security-Policy) names the scripts by their hash and forbids every request, so
text from a run that got through as a script would still not run, and opening the page stays private.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from html import escape
from importlib import resources
from string import Template
from typing import Any

from flagscale_perf.analysis.blocks import HeatMap, Report, Section, Series
from flagscale_perf.report.charts import chart_of
from flagscale_perf.report.format import shown
from flagscale_perf.report.markup import Html, join, lines, tag, text
from flagscale_perf.report.page_blocks import HINT, blocks, findings, note, tiles
from flagscale_perf.report.palette import variables
from flagscale_perf.spine.errors import PerfError


def render(report: Report) -> str:
    """The whole page. Raises PerfError where it has charts and the library that draws is not installed."""
    return render_page(report, _library() if _charts(report) else "")


def render_page(report: Report, library: str) -> str:
    """The whole page with so much of a library (JavaScript) in it."""
    script = _asset("page.js")
    sections = [*_found(report), *map(_section, report.sections)]
    charts = _charts(report)
    content = [_header(report), tiles(report.tiles), note(HINT if charts else ""), *sections]
    return Template(_asset("page.html")).substitute(
        policy=escape(_policy(script, library)),
        title=text(f"{shown(report.title)} · flagscale_perf"),
        style=Template(_asset("page.css")).substitute(light=variables(0), dark=variables(1)),
        menu=_menu(report),
        content=lines(content),
        charts=_json(charts),
        library=_packed(library),
        script=script,
    )


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _library() -> str:
    """plotly.js as the Python package brings it along."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise PerfError(
            "--format html needs plotly, which is not installed; "
            "pip install 'flagscale-perf[report]', or plotly alone"
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
    rest = "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {hashes}; {rest}"


def _json(content: dict[str, Any]) -> str:
    """For a script element: nothing in it can end the element, and it is ASCII."""
    made = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return made.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _charts(report: Report) -> dict[str, Any]:
    found = (block for section in report.sections for block in section.blocks)
    return {block.key: chart_of(block) for block in found if isinstance(block, Series | HeatMap)}


def _menu(report: Report) -> Html:
    places = [(section.key, section.menu) for section in report.sections if section.menu]
    if report.findings is not None:
        places.insert(0, ("findings", "Findings"))
    return join(tag("a", menu, href=f"#{key}") for key, menu in places)


def _header(report: Report) -> Html:
    state = tag("span", report.state, class_="state bad" if report.tone == "bad" else "state")
    over = tag("p", shown(report.title), " ", state, class_="over") if report.subject else Html("")
    heading = tag("h1", report.subject or shown(report.title), class_="" if report.subject else report.tone)
    return tag("header", over, heading, Html("\n"), blocks(report.facts), class_="head")


def _found(report: Report) -> list[Html]:
    if report.findings is None:
        return []
    return [tag("section", tag("h2", "Findings"), Html("\n"), findings(report.findings), id="findings")]


def _section(section: Section) -> Html:
    title = tag("h2", section.title) + Html("\n") if section.title else Html("")
    return tag("section", title, blocks(section.blocks), id=section.key)
