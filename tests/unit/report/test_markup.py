"""HTML from parts, and figures with their units."""

from __future__ import annotations

import pytest

from flagscale_perf.report.markup import (
    Html,
    count,
    duration,
    join,
    milliseconds,
    numbers_of,
    pairs,
    percent,
    scaled,
    span,
    table,
    tag,
    text,
    unit,
)

BAD = '<b a="\'">&'
ESCAPED = "&lt;b a=&quot;&#x27;&quot;&gt;&amp;"


def test_what_is_not_html_is_escaped_once() -> None:
    assert text(BAD) == ESCAPED
    assert text(text(BAD)) == ESCAPED
    assert tag("p", BAD, tag("b", BAD)) == f"<p>{ESCAPED}<b>{ESCAPED}</b></p>"
    assert join(["a", BAD], "<") == f"a&lt;{ESCAPED}"
    assert Html("<p>") + BAD == f"<p>{ESCAPED}"
    assert isinstance(Html("<p>") + "x", Html)


def test_an_attribute_cannot_be_left() -> None:
    assert tag("p", title='"><script>', class_="x", data_copy="a'b") == (
        '<p title="&quot;&gt;&lt;script&gt;" class="x" data-copy="a&#x27;b"></p>'
    )
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_what_reorders_a_line_or_is_no_character_is_spelled_out() -> None:
    assert text("a\u202eb\u2028\ud800\n") == "a\\u202eb\\u2028\\ud800\\x0a"


def test_a_table_and_pairs() -> None:
    assert table(["phase", "time"], [["forward", "1 ms"], [BAD, None]], numbers=1) == (
        '<div class="scroll" tabindex="0"><table><thead><tr><th>phase</th><th class="n">time</th></tr></thead>\n'
        '<tbody>\n<tr><td>forward</td><td class="n">1 ms</td></tr>\n'
        f'<tr><td>{ESCAPED}</td><td class="n">–</td></tr>\n</tbody></table></div>\n'
    )
    assert (
        pairs([("a", "1"), ("left out", None)])
        == '<dl class="facts"><div><dt>a</dt><dd>1</dd></div>\n</dl>\n'
    )


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (percent(0.1234), "12.3 %"),
        (percent(0.0), "0.0 %"),
        (percent(0.00021), "0.021 %"),
        (percent(1e-9), "< 0.001 %"),
        (percent(-0.02), "-2.0 %"),
        (percent(None), None),
        (duration(0.25), "0.250 s"),
        (duration(8.68e-05), "< 1 ms"),
        (duration(0.0), "0.0 s"),
        (duration(119.94), "119.9 s"),
        (duration(200), "3 min 20 s"),
        (duration(25_500), "7 h 05 min"),
        (duration(3 * 86_400 + 4 * 3600), "3 d 04 h"),
        (duration(None), None),
        (milliseconds(12.34), "12.3 ms"),
        (milliseconds(2131.4), "2,131 ms"),
        (milliseconds(None), None),
        (unit(1.5, 2, "GB"), "1.50 GB"),
        (unit(None, 2, "GB"), None),
        (count(1234567), "1,234,567"),
        (count(None), None),
        (scaled(4.04e21, "FLOP"), "4.04 ZFLOP"),
        (scaled(29_100_000, "J"), "29.1 MJ"),
        (scaled(7, "J"), "7 J"),
        (scaled(None, "J"), None),
        (span(7, 7), "7"),
        (span(7, 9), "7 to 9"),
        (span(None, 9), None),
        (numbers_of([0, 1, 2, 5]), "0 to 2, 5"),
        (numbers_of([0, 2, 4, 6], most=2), "0, 2 … (4 in all)"),
        (numbers_of([]), ""),
    ],
)
def test_figures(made: str | None, shown: str | None) -> None:
    assert made == shown
