"""Blocks as elements."""

from __future__ import annotations

from flagscale_perf.analysis.blocks import Findings, Note, Pairs, Quantity, StackedBar, Stripe, Table, Tile
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
    assert "Nothing: no figure" in findings(Findings([], []))
    assert 'id="finding-data_stall"' in findings(Findings([finding()], []))
