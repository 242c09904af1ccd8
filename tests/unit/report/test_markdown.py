"""The report as Markdown, byte for byte, and nothing in it that is not ours is markup."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.report.markdown import escaped, render
from flagscale_perf.spine.records import RunEnd
from tests.every_block import every_block
from tests.fakes import make_facts, make_header, make_step
from tests.golden import golden
from tests.unit.report.test_text import report_of


def test_every_kind_of_block() -> None:
    assert render(every_block()) == golden("every_block.md")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>&", "&#60;script&#62;&#38;"),
        ("[x](http://y) | `z`", "\\[x\\](http&#58;//y) \\| \\`z\\`"),
        ("a_b*c*~d~$e$\\", "a\\_b\\*c\\*\\~d\\~\\$e\\$\\\\"),
        ("@team #12 www.x.y", "&#64;team &#35;12 www&#46;x.y"),
        ("one\ntwo\x1b[0m", "one\\\\x0atwo\\\\x1b\\[0m"),
        ("--flag 1.5 % (at most)", "--flag 1.5 % (at most)"),
    ],
)
def test_foreign_text_is_shown_and_never_read(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_a_hostile_name_stays_in_its_cell(tmp_path: Path) -> None:
    evil = "x |\n# <img src=x onerror=alert(1)> [a](javascript:b)"
    report = report_of(
        tmp_path,
        [make_header(facts=make_facts(script=evil, device=evil)), make_step(1), RunEnd(evil, 0, 1, 0)],
    )
    lines = render(report).splitlines()
    assert "<" not in "".join(lines)
    assert [line for line in lines if line.startswith("#")][:2] == ["# Run 20240129\\_103000", "## Findings"]
