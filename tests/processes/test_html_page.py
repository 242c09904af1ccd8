"""The page in a browser: charts are drawn, nothing complains, no request leaves it. Skipped where there is no
Chromium.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.cli import main
from flagscale_perf.report.html import render
from flagscale_perf.training.analysis.blocks import report_of
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.analysis.report import TrainingReport
from tests import reports, several_runs
from tests.browser import BROWSERS, Browser, browser, find_browser
from tests.synthetic import TROUBLED, write

pytestmark = pytest.mark.skipif(
    find_browser() is None, reason=f"none of {', '.join(BROWSERS)} is on the PATH"
)
CHARTS = {"trend", "phases", "ranks", "memory", "hardware"}
LIGHT, DARK = "rgb(244, 245, 247)", "rgb(15, 18, 22)"


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with browser() as one:
        yield one


@pytest.fixture
def tab(started: Browser) -> Browser:
    """An empty one."""
    started.open_tab()
    return started


@pytest.fixture(scope="class")
def wide(started: Browser, troubled: Path) -> Browser:
    """The page of every chart, which the tests of a class look at together."""
    started.open_tab()
    started.show(troubled, 1440, "light")
    return started


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run that has every chart."""
    directory = tmp_path_factory.mktemp("troubled")
    return page_of(read_report(open_session(write(TROUBLED, directory))), directory)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs")
    several_runs.write(directory)
    return directory


def page_of(report: TrainingReport, directory: Path) -> Path:
    path = directory / "report.html"
    path.write_text(render(report_of(report)), encoding="utf-8")
    return path


def paths_of(tab: Browser) -> dict[str, int]:
    """Chart -> how many shapes with a size it has."""
    shapes = "[...chart.querySelectorAll('path')].filter(path => path.getTotalLength() > 0).length"
    counted = (
        f"[...document.querySelectorAll('.chart')].map(chart => [chart.id.slice('chart-'.length), {shapes}])"
    )
    return dict(tab.evaluate(counted))


def assert_every_chart_is_drawn(tab: Browser, page: Path, width: int, background: str) -> None:
    drawn = paths_of(tab)
    assert set(drawn) == CHARTS
    assert {name for name, paths in drawn.items() if paths < 4} == set()
    assert tab.evaluate("document.querySelector('#chart-ranks image') !== null")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == background
    assert (tab.seen.requests, tab.seen.complaints) == ([page.as_uri()], [])


def test_on_a_small_dark_screen_every_chart_is_drawn_and_nothing_leaves_the_page(
    tab: Browser, troubled: Path
) -> None:
    tab.show(troubled, 390, "dark")
    assert_every_chart_is_drawn(tab, troubled, 390, DARK)


class TestOneRun:
    def test_every_chart_is_drawn_and_nothing_leaves_the_page(self, wide: Browser, troubled: Path) -> None:
        assert_every_chart_is_drawn(wide, troubled, 1440, LIGHT)

    def test_one_zoom_for_all_charts_over_the_iterations(self, wide: Browser) -> None:
        ranges = (
            f"{sorted(CHARTS)}.map(name => document.getElementById('chart-' + "
            "name).layout.xaxis.range.map(Math.round).join())"
        )
        assert set(wide.evaluate(ranges)) == {"1,600"}
        wide.evaluate(
            "Plotly.relayout('chart-trend', {'xaxis.range[0]': 100, 'xaxis.range[1]': 200}).then(() => 0)"
        )
        wide.wait_until(lambda: set(wide.evaluate(ranges)) == {"100,200"})
        assert wide.seen.complaints == []

    def test_buttons_change_the_theme_and_the_map_and_none_sends_anything(
        self, wide: Browser, troubled: Path
    ) -> None:
        for theme in ("dark", "light"):
            wide.evaluate("document.getElementById('theme').click()")
            assert wide.evaluate("document.documentElement.dataset.theme") == theme
        shown = "document.getElementById('chart-ranks').data.map(t => t.visible).indexOf(true)"
        for trace in (2, 0):
            wide.evaluate(f"document.querySelector('.switch [data-trace=\"{trace}\"]').click()")
            wide.wait_until(lambda trace=trace: wide.evaluate(shown) == trace)
        titles = wide.evaluate("[...document.querySelectorAll('.modebar-btn')].map(b => b.dataset.title)")
        assert set(titles) == {"Zoom in", "Zoom out", "Reset axes", "Download plot as a PNG"}
        assert (wide.seen.requests, wide.seen.complaints) == ([troubled.as_uri()], [])

    def test_a_flag_is_copied_or_selected(self, wide: Browser) -> None:
        wide.evaluate(
            "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (text) => { "
            "window.copied = text; }}, configurable: true})"
        )
        button = "document.querySelector('.copy')"
        flag = wide.evaluate(f"{button}.dataset.copy")
        assert flag.startswith("--")
        wide.evaluate(f"{button}.click()")
        assert wide.evaluate("window.copied") == flag
        wide.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined, configurable: true})")
        wide.evaluate(f"{button}.click()")
        assert wide.evaluate("getSelection().toString()") == flag


def test_hostile_text_runs_nothing_and_asks_for_nothing(tab: Browser, tmp_path: Path) -> None:
    tab.call(
        "Page.addScriptToEvaluateOnNewDocument", source="window.alert = () => { window.wasHurt = true; };"
    )
    page = page_of(reports.hostile(), tmp_path)
    tab.show(page, 1440, "light")
    assert tab.evaluate("window.wasHurt") is None
    assert tab.evaluate("document.querySelectorAll('.chart a, main img').length") == 0
    assert (tab.seen.requests, tab.seen.complaints) == ([page.as_uri()], [])


def test_the_policy_stops_a_script_and_a_request_that_got_in(tab: Browser, tmp_path: Path) -> None:
    page = page_of(reports.small(), tmp_path)
    got_in = "<script>window.wasHurt = true</script><img src='http://127.0.0.1:9/x.png'></body>"
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", got_in), encoding="utf-8")
    tab.call("Page.navigate", url=page.as_uri())
    tab.wait_until(lambda: sum("Content Security Policy" in line for line in tab.seen.complaints) >= 2)
    assert tab.evaluate("window.wasHurt") is None


def test_an_old_browser_shows_everything_but_the_charts(tab: Browser, tmp_path: Path) -> None:
    tab.call("Page.addScriptToEvaluateOnNewDocument", source="delete window.DecompressionStream;")
    tab.call("Page.navigate", url=page_of(reports.small(), tmp_path).as_uri())
    tab.wait_until(lambda: tab.evaluate("document.querySelector('#chart-trend p') !== null"))
    assert tab.evaluate("document.querySelector('#chart-trend p').textContent") == (
        "No chart: DecompressionStream is not defined. It needs a browser of 2023 or newer."
    )
    assert tab.evaluate("document.querySelectorAll('.finding').length") == 1


def test_runs_ticked_are_drawn_over_each_other_each_in_a_colour_of_its_own(
    tab: Browser, runs: Path, tmp_path: Path
) -> None:
    page = tmp_path / "runs.html"
    assert main(["runs", str(runs), "--format", "html", "-o", str(page)]) == 0
    tab.show(page, 1440, "light")
    lines = (
        "document.getElementById('chart-trend').data.filter(line => line.visible && line.yaxis === 'y')"
        ".map(line => [line.meta.group, line.line.color])"
    )
    before = dict(tab.evaluate(lines))
    assert set(before) == {"run0", "run4", "run5"}  # the fastest, the newest and the slowest
    assert len(set(before.values())) == 3
    tab.evaluate("document.querySelector('[data-group=run4]').click()")
    tab.evaluate("document.querySelector('[data-group=run3]').click()")
    tab.wait_until(lambda: set(dict(tab.evaluate(lines))) == {"run0", "run3", "run5"})
    after = dict(tab.evaluate(lines))
    assert {run: after[run] for run in ("run0", "run5")} == {run: before[run] for run in ("run0", "run5")}
    assert after["run3"] == before["run4"]  # which is free again
    assert (tab.seen.requests, tab.seen.complaints) == ([page.as_uri()], [])


def test_a_comparison_draws_both_runs_and_fits_a_small_screen(
    tab: Browser, runs: Path, tmp_path: Path
) -> None:
    page = tmp_path / "compare.html"
    both = (str(runs / name) for name in ("llama_7b_late_data", "llama_7b_tp4"))
    assert main(["compare", *both, "--format", "html", "-o", str(page)]) == 0
    tab.show(page, 390, "dark")
    assert tab.evaluate("document.getElementById('chart-trend').data.length") == 10
    assert tab.evaluate("document.querySelectorAll('.interval').length") == 11
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert (tab.seen.requests, tab.seen.complaints) == ([page.as_uri()], [])
