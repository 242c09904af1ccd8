"""The report as a figure: that it is drawn whole, whatever is missing. How it looks is in
docs/images/report.png.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from flagscale_perf.report import png
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.training.analysis.fold import read_report
from tests.fakes import make_facts, make_header, make_step, sample_run
from tests.synthetic import TROUBLED, ranks_record, write
from tests.unit.report.test_text import report_of


def size_of(image: bytes) -> tuple[int, int]:
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", image[16:24])
    return width, height


def titles(report: object, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """The panels drawn, and why some are empty."""
    drawn: list[str] = []
    empty: list[str] = []
    title, nothing = png._title, png._empty
    monkeypatch.setattr(png, "_title", lambda axes, text: (drawn.append(text), title(axes, text)))
    monkeypatch.setattr(png, "_empty", lambda axes, reason: (empty.append(reason), nothing(axes, reason)))
    assert size_of(png.render(report)) == (1600, 1500)  # type: ignore[arg-type]
    return drawn, empty


def test_every_panel_of_a_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert titles(read_report(write(TROUBLED, tmp_path)), monkeypatch) == (
        [
            "TFLOPS/GPU and MFU",
            "Iteration time, 0 slow steps",
            "Phases of a mean step",
            "Ranks: work in a step, without waiting",
            "Memory of rank 0's device: peak 110.0 GB",
            "Power of rank 0's device: 640 W, 5.48 tokens/J",
            "Where 1155 s went: ETTR 0.553",
        ],
        [],
    )


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, empty = titles(report_of(tmp_path, [make_header()], b"x\n"), monkeypatch)
    assert empty == [
        "FLOPs are not known", "no interval is complete", "no phases: --perf-breakdown was off", "the file tells of rank 0 only",
        "not read", "not read",
    ]  # fmt: skip


def test_a_run_of_one_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, empty = titles(report_of(tmp_path, sample_run()), monkeypatch)
    assert empty == ["no phases: --perf-breakdown was off", "the file tells of rank 0 only"]


def test_a_name_is_no_formula(tmp_path: Path) -> None:
    facts = make_facts(script="$\\frac{", device="\x1b[2J" * 100, missing=["$"])
    assert size_of(
        png.render(report_of(tmp_path, [make_header(facts=facts), make_step(1), RunEnd("$x$", 0, 1, 0)]))
    ) == (1600, 1500)


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PerfError, match=r"needs matplotlib; pip install 'flagscale_perf\[figures\]'"):
        png.render(report_of(tmp_path, sample_run()))


def test_stretches_of_ranks_stand_where_they_were(tmp_path: Path) -> None:
    stretches = [
        ranks_record(10),
        ranks_record(15, first_iteration=11),
        ranks_record(100, first_iteration=16),
    ]
    axes = Figure().add_subplot()
    png._ranks(axes, report_of(tmp_path, [make_header(), *stretches]))
    (cells,) = axes.collections
    assert isinstance(cells, QuadMesh)
    assert cells.get_coordinates()[0, :, 0].tolist() == [1, 11, 16, 100]
    assert axes.get_ylim() == (7.5, -0.5)
