"""The page: byte for byte, closed to the network, and foreign text in it is text."""

from __future__ import annotations

import base64
import builtins
import gzip
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest

from flagscale_perf.report.html import render, render_page
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.training.analysis.blocks import report_of
from flagscale_perf.training.analysis.report import TrainingReport
from tests import reports
from tests.every_block import every_block
from tests.golden import golden

LIBRARY = "/* here is plotly.js */"
OURS = {
    *("html", "head", "meta", "title", "style", "body", "script", "div", "nav", "a", "button", "main"),
    *("header", "section", "article", "span", "p", "b", "i", "h1", "h2", "h3", "h4", "dl", "dt", "dd"),
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "code", "details", "summary"),
}
MAKERS = [reports.small, reports.bare, reports.hostile]


class Page(HTMLParser):
    """What a browser would see: elements with their attributes, texts, and the content of the scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif data.strip():
            self.texts.append(data)

    def attributes(self, name: str) -> list[str]:
        return [str(found[name]) for _, found in self.elements if name in found]


def page_of(make: Callable[[], TrainingReport]) -> Page:
    return Page(render_page(report_of(make()), LIBRARY))


def charts_of(page: Page) -> dict[str, Any]:
    return dict(json.loads(page.scripts[0]))


def without_assets(page: str) -> str:
    """Without page.css, page.js and the packed library, which stand in it as they are, and their hashes."""
    for name in ("style", "script"):
        page = re.sub(
            rf"(<{name}(?! type=.application)[^>]*>).*?(</{name}>)", r"\1...\2", page, flags=re.DOTALL
        )
    return re.sub("sha256-[A-Za-z0-9+/=]+", "sha256-...", page)


def test_every_kind_of_block() -> None:
    assert without_assets(render_page(every_block(), LIBRARY)) == golden("every_block.html")


@pytest.mark.parametrize("make", MAKERS)
def test_nothing_of_a_page_is_elsewhere(make: Callable[[], TrainingReport]) -> None:
    page = page_of(make)
    assert page.open == []
    assert {tag for tag, _ in page.elements} <= OURS
    assert page.attributes("src") == []
    assert [address for address in page.attributes("href") if not address.startswith("#")] == []
    assert not any(name.startswith("on") for _, found in page.elements for name in found)
    assert "url(" not in "".join(page.attributes("style"))


def test_the_policy_allows_the_two_scripts_and_no_request() -> None:
    page = page_of(reports.small)
    (policy,) = (
        found["content"]
        for tag, found in page.elements
        if found.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in str(policy).split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data: blob:"
    allowed = {
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in (page.scripts[2], LIBRARY)
    }
    assert set(rules["script-src"].split()) == allowed
    assert set(rules) == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}


def test_the_library_is_packed_and_the_same_every_time() -> None:
    assert render_page(report_of(reports.small()), LIBRARY) == render_page(
        report_of(reports.small()), LIBRARY
    )
    packed = page_of(reports.small).scripts[1]
    assert gzip.decompress(base64.b64decode(packed)).decode() == LIBRARY


def test_hostile_text_is_shown_as_text() -> None:
    page = page_of(reports.hostile)
    assert len(page.scripts) == 3
    assert sum("<script>alert(1)</script><img src=http://x.invalid/a" in shown for shown in page.texts) > 30
    raw = render_page(report_of(reports.hostile()), LIBRARY)
    assert not re.search("[\u2028\u202e]", raw)
    assert "<img" not in raw


def test_hostile_text_in_a_chart_is_json_and_no_markup() -> None:
    page = page_of(reports.hostile)
    assert not re.search("[<>&\u2028]", page.scripts[0])
    shown = json.dumps(charts_of(page)["hardware"])
    assert "alert(1)" in shown
    assert "<script" not in shown


def test_what_is_not_known_is_said_in_a_line_each() -> None:
    texts = "\n".join(page_of(reports.bare).texts)
    for line in (
        "Nothing to judge: no iteration finished.",
        "No time is recorded yet.",
        "No trend: no interval after the warm-up is finished yet.",
        "No phases; switch on --perf-breakdown.",
        "No ranks side by side: only rank 0 is in the file.",
        "No events.",
        "no JSON",
    ):
        assert line in texts
    assert charts_of(page_of(reports.bare)) == {}
    assert "None" not in texts
    assert not {"memory", "hardware"} & set(page_of(reports.bare).attributes("id"))


def test_every_chart_has_its_place() -> None:
    for make in MAKERS:
        page = page_of(make)
        assert {f"chart-{name}" for name in charts_of(page)} == {
            key for key in page.attributes("id") if key.startswith("chart-")
        }


def test_a_finding_shows_its_figures_and_its_flags_to_copy() -> None:
    page = page_of(reports.small)
    assert page.attributes("data-copy") == ["--num-workers"]
    texts = "|".join(page.texts)
    assert "costs |7.4 s, 11.0 % of the wall time|at most +12.0 % tokens/s" in texts
    assert "11.0 %| loading data, of an iteration |limit 2.0 %; ours: one batch ahead" in texts
    assert "Not judged: throttling: no counters were read" in texts


def test_without_plotly_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "plotly":
            raise ModuleNotFoundError(name, name=name)
        return found(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(PerfError, match=r"^--format html needs plotly, which is not installed\ninstall it: "):
        render(report_of(reports.small()))


def test_the_whole_page_has_plotly_in_it() -> None:
    library = gzip.decompress(base64.b64decode(Page(render(report_of(reports.small()))).scripts[1])).decode()
    assert library.startswith("/**\n* plotly.js v")
