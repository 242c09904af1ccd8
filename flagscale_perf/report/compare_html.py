"""A comparison as one self-contained page: no script, nothing from the network, every text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from flagscale_perf.analysis.compare.compare import Comparison
from flagscale_perf.analysis.compare.judge import FASTER, SLOWER
from flagscale_perf.report.compare import Cells, sentences, tables, title
from flagscale_perf.spine.units import printable

_STYLE = """
:root { color-scheme: light dark; --line: #d0d7de; --slower: #b42318; --faster: #067647; }
@media (prefers-color-scheme: dark) { :root { --line: #3d444d; --slower: #ff8a80; --faster: #6fdd8b; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; }
.scroll { overflow-x: auto; margin: 1.5rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
.slower { color: var(--slower); font-weight: 600; }
.faster { color: var(--faster); font-weight: 600; }
"""


def render_html(result: Comparison) -> str:
    """The page. Rows and the title that say slower or faster have its colour, and the word."""
    heading = _text(title(result))
    lines = "".join(f"<li>{_text(line)}</li>\n" for line in sentences(result))
    body = "".join(_table(head, rows) for head, rows in tables(result))
    kind = result.whole.verdict if result.whole.verdict in (SLOWER, FASTER) else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{heading}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<h1 class="{kind}">{heading}</h1>\n<ul>\n{lines}</ul>\n{body}</body>\n</html>\n'
    )


def _table(head: Cells, rows: Sequence[Cells]) -> str:
    names = "".join(f"<th>{_text(cell)}</th>" for cell in head)
    lines = "".join(
        f"<tr{_class(row)}>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>\n" for row in rows
    )
    return f'<div class="scroll"><table>\n<tr>{names}</tr>\n{lines}</table></div>\n'


def _class(row: Cells) -> str:
    return f' class="{row[-1]}"' if row[-1] in (SLOWER, FASTER) else ""


def _text(text: str) -> str:
    return escape(printable(text))
