from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

from flagscale_perf.report.compare_html import render_html
from tests.golden import golden
from tests.unit.report.test_compare import sample


class Tags(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_the_page_is_as_promised(tmp_path) -> None:
    assert render_html(sample(tmp_path)) == golden("compare.html")


def test_nothing_of_it_leaves_the_page_or_runs(tmp_path) -> None:
    result = sample(tmp_path)
    run = replace(result.new_runs[0], path='"><script>alert(1)</script><img src=x onerror=alert(1)>\x1b')
    page = render_html(replace(result, new_runs=[run]))
    tags = Tags(page)
    assert not tags.names & {"script", "img", "link", "iframe"}
    assert not tags.attributes & {"src", "href", "onerror"}
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page and "\\x1b" in page and "\x1b" not in page
