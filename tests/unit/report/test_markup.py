"""HTML is put together from parts, and text can neither become markup nor leave its attribute."""

from __future__ import annotations

from flagscale_perf.report.markup import Html, join, lines, tag, text

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
    assert tag("p", class_="") == "<p></p>"


def test_what_reorders_a_line_or_is_no_character_is_spelled_out() -> None:
    assert text("a\u202eb\u2028\ud800\n") == "a\\u202eb\\u2028\\ud800\\x0a"


def test_parts_on_lines_of_their_own() -> None:
    assert lines([tag("p", "a"), "", BAD]) == f"<p>a</p>\n{ESCAPED}\n"
