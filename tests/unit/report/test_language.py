"""A report is put into the reader's language block by block; what programs read of it is not."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.blocks import (
    FileLink,
    Findings,
    Interval,
    Note,
    Quantity,
    Report,
    Section,
    Table,
)
from flagscale_perf.report.format import shown
from flagscale_perf.report.language import translated
from flagscale_perf.spine.language import CHINESE, using
from tests.every_instrument import WRITERS, report_of

LINK = FileLink("its page", "runs/a.html")


def test_cells_are_said_and_names_figures_and_paths_stay(tmp_path: Path) -> None:
    low, middle, high = (Quantity(value, "share", 2, is_change=True) for value in (-0.01, 0.06, 0.1))
    rows = [("forward", "slower", "qwen"), (Interval(middle, low, high, 1.0), ("NEW is ", middle), None)]
    table = Table(("phase", "verdict", "model"), rows, notes=[("a/b", "; ", LINK), None])
    report = report_of("rpc", WRITERS["rpc"](tmp_path))
    made = Report("Calls", [Note("not judged")], [Section("k", "", "Trend", [table])], report.content)
    with using(CHINESE):
        said = translated(made)
        (block,) = said.sections[0].blocks
        assert isinstance(block, Table)
        assert list(block.head) == ["阶段", "判定", "模型"]
        assert [[shown(cell) for cell in row] for row in block.rows] == [
            ["前向", "更慢", "qwen"],
            ["+6.00 % (-1.00 % 到 +10.00 %)", "NEW +6.00 %", "-"],
        ]
        assert block.notes[0] == ("a/b", "；", FileLink("它的页面", "runs/a.html"))
    assert (said.sections[0].key, said.content) == ("k", report.content)


def test_english_is_the_same_object(tmp_path: Path) -> None:
    report = report_of("rpc", WRITERS["rpc"](tmp_path))
    assert translated(report) is report
    with using(CHINESE):
        found = translated(report).findings
    assert isinstance(found, Findings) and report.findings is not None
    assert found.found == report.findings.found and found.unjudged != report.findings.unjudged
