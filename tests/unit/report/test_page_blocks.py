"""Each block of a report as elements of a page, with every text escaped."""

from __future__ import annotations

from flagscale_perf.analysis.blocks import (
    Findings,
    Interval,
    Line,
    Note,
    Pairs,
    Panel,
    Quantity,
    Series,
    StackedBar,
    Stripe,
    Table,
    Tile,
)
from flagscale_perf.report.page_blocks import blocks, findings, tiles
from tests.reports import finding

BAD = '<b a="\'">&'
ESCAPED = "&lt;b a=&quot;&#x27;&quot;&gt;&amp;"


def test_a_table_and_pairs() -> None:
    table = Table(("phase", "time"), [("forward", Quantity(1.0, "ms")), (BAD, None)], 1)
    assert blocks([table]) == (
        '<div class="scroll" tabindex="0"><table><thead><tr><th>phase</th><th '
        'class="n">time</th></tr></thead>\n'
        '<tbody>\n<tr><td>forward</td><td class="n">1.0 ms</td></tr>\n'
        f'<tr><td>{ESCAPED}</td><td class="n">-</td></tr>\n</tbody></table></div>\n'
    )
    pairs = Pairs([("a", "1"), ("left out", None)])
    assert blocks([pairs]) == '<dl class="facts"><div><dt>a</dt><dd>1</dd></div>\n</dl>\n'


def test_a_row_with_a_colour_shows_its_share() -> None:
    table = Table(("phase", "share"), [("forward", Quantity(0.25, "share"))], 1, colours=["sky"])
    shown = blocks([table])
    assert '<td><i class="swatch" style="background:var(--sky)"></i>forward</td>' in shown
    assert '25.0 %<span class="meter"><i style="width:25.0%;background:var(--sky)"></i></span>' in shown


def test_a_bar_leaves_out_what_takes_no_time() -> None:
    bar = StackedBar("all", "s", [Stripe("work", 30.0, 0.75, "green"), Stripe("rest", None, None, "grey")])
    shown = blocks([bar])
    assert shown.count("flex-grow") == 1
    assert "<dd><b>-</b> not told apart</dd>" in shown


def test_notes_and_tiles_are_escaped() -> None:
    assert blocks([Note(BAD, "bad")]) == f'<p class="note bad">{ESCAPED}</p>\n'
    assert f'<p class="value">{ESCAPED}</p>' in tiles([Tile("x", BAD)])
    assert tiles([]) == ""


def test_no_finding_is_said() -> None:
    assert "No problems: every figure is within its limit." in findings(Findings([], []))
    shown = findings(Findings([], ["MFU: no peak"]))
    assert "No problem found: every judged figure is within its limit; 1 not judged." in shown
    assert 'id="finding-data_stall"' in findings(Findings([finding()], []))


def test_a_chart_without_panels_has_no_place() -> None:
    panel = Panel("Time", "ms", [Line("Time", [1], [2.0], "blue")])
    place = '<div class="chart" id="chart-trend" role="figure" aria-label="all"></div>'
    assert blocks([Series("trend", "all", [panel], "iteration", None)]) == f"{place}\n"
    assert blocks([Series("trend", "all", [], "iteration", None)]) == ""


def test_an_interval_is_drawn_on_a_line_around_no_change() -> None:
    ends = (Quantity(share, "share", 1, is_change=True) for share in (0.05, 0.0, 0.1))
    shown = blocks([Table(("change",), [(Interval(*ends, reach=0.1, limit=0.03),)])])
    assert "+5.0 % (+0.0 % to +10.0 %)" in shown
    assert '<i style="left:50.0%" class="zero"></i><i style="left:64.3%" class="limit"></i>' in shown
    assert '<i style="left:50.0%;width:47.6%" class="held"></i><i style="left:73.8%" class="dot">' in shown


def test_bars_to_one_scale_leave_the_rest_free() -> None:
    shown = blocks([StackedBar("NEW", "ms", [Stripe("work", 30.0, 1.0, "green")], room=40.0)])
    assert '<i style="flex-grow:10"></i></div>' in shown
    assert '<h3>NEW <span class="small">30.0 ms</span></h3>' in shown


def test_a_row_has_a_box_for_its_lines_and_a_note_below() -> None:
    table = Table(("run",), [("a",), ("b",)], notes=[BAD, None], groups=["run0", ""], chosen=["run0"])
    shown = blocks([table])
    box = '<input type="checkbox" data-group="run0" checked="checked">'
    assert f'<td><label class="pick">{box}a</label><span class="small">{ESCAPED}</span></td>' in shown
    assert "<td>b</td>" in shown
