"""The report as a figure: that it is drawn whole, whatever is missing. How it looks is in
docs/images/report.png.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from flagscale_perf.analysis.blocks import Findings, HeatMap, Layer, Line, Panel, Report, Section, Series
from flagscale_perf.analysis.job import open_session
from flagscale_perf.report import png
from flagscale_perf.report.axes import value_range
from flagscale_perf.report.png_lanes import draw, room_of
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.training.analysis import blocks
from flagscale_perf.training.analysis.fold import read_report
from tests.fakes import make_facts, make_header, make_step, sample_run
from tests.synthetic import TROUBLED, ranks_record, write
from tests.unit.report.test_text import report_of


def size_of(image: bytes) -> tuple[int, int]:
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", image[16:24])
    return width, height


def titles(report: Report) -> list[str]:
    """Of the panels that are drawn."""
    return [title for axes in png._figure(report).axes if (title := axes.get_title(loc="left"))]


def test_every_panel_of_a_whole_run(tmp_path: Path) -> None:
    shown = titles(blocks.report_of(read_report(open_session(write(TROUBLED, tmp_path)))))
    assert "Tokens per second (axis not from 0)" in shown or "SM clock, MHz (axis not from 0)" in shown
    assert [title.removesuffix(" (axis not from 0)") for title in shown] == [
        *("TFLOPS per GPU", "Share of the peak", "Iteration time, ms", "Tokens per second", "Pauses, s"),
        *("Mean step, ms", "Work of each rank, ms", "Memory, GB"),
        *("Power, W", "SM clock, MHz", "Temperature, °C", "Tokens per joule"),
        "Goodput: 19 min 15 s",
    ]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    report = report_of(tmp_path, [make_header()], b"x\n")
    assert titles(report) == ["Goodput: 2.0 s"]
    missing = " ".join(png._missing(report))
    assert "No phases; switch on --perf-breakdown" in missing
    assert "lines of the run file that are no records: 1; line 2: " in missing


def test_a_name_is_no_formula(tmp_path: Path) -> None:
    facts = make_facts(script="$\\frac{", device="\x1b[2J" * 100, missing=["$"])
    records = [make_header(facts=facts), make_step(1), RunEnd("$x$", 0, 1, 0)]
    assert size_of(png.render(report_of(tmp_path, records)))[0] == 1600


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(
        PerfError, match=r"^--format png needs matplotlib, which is not installed\ninstall it: "
    ):
        png.render(report_of(tmp_path, sample_run()))


def test_stretches_of_ranks_stand_where_they_were(tmp_path: Path) -> None:
    stretches = [
        ranks_record(10),
        ranks_record(15, first_iteration=11),
        ranks_record(100, first_iteration=16),
    ]
    report = report_of(tmp_path, [make_header(), *stretches])
    (heat,) = (block for section in report.sections for block in section.blocks if isinstance(block, HeatMap))
    axes = Figure().add_subplot()
    draw(axes, heat)
    (cells,) = axes.collections
    assert isinstance(cells, QuadMesh)
    assert cells.get_coordinates()[0, :, 0].tolist() == [1, 11, 16, 100]
    assert axes.get_ylim() == (7.5, -0.5)


def test_axes_are_those_of_the_page(tmp_path: Path) -> None:
    """Also where values hardly differ, which matplotlib would show as differences from a number apart."""
    panel = Panel("Rate", "", [Line("mean", [1, 20], [32700.0, 32709.0], "blue")])
    figure = Figure()
    axes = figure.add_subplot()
    png._lines(axes, panel, Series("trend", "all", [panel], "iteration", (1, 20)))
    FigureCanvasAgg(figure).draw()
    assert (axes.get_xlim(), axes.get_ylim()) == ((1, 20), value_range(panel))
    assert (axes.get_xlabel(), axes.yaxis.get_offset_text().get_text()) == ("iteration", "")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["mean"]


def test_all_that_is_not_judged_is_said_in_one_sentence(tmp_path: Path) -> None:
    doubts = Findings([], ["MFU: no peak is known", "clocks: not read"])
    report = replace(report_of(tmp_path, sample_run()), findings=doubts, sections=[])
    assert png._missing(report) == ["Not judged: MFU: no peak is known; clocks: not read"]


def test_a_panel_without_a_neighbour_has_the_whole_width(tmp_path: Path) -> None:
    panels = [Panel("Rate", "", [Line("rate", [1, 2], [1.0, 2.0], "blue")])] * 3
    sections = [Section("trend", "", "", [Series("trend", "all", panels, "iteration", (1, 2))])]
    figure = png._figure(replace(report_of(tmp_path, sample_run()), sections=sections))
    one, other, alone = (axes.get_position() for axes in figure.axes)
    assert (alone.x0, alone.x1) == pytest.approx((one.x0, other.x1))


def test_a_title_ends_where_its_panel_does(tmp_path: Path) -> None:
    """One that is too long for a line goes on in a second one, off the axis above."""
    title = "Captured steps: longer than the stage's median rank, the worst of each row"
    panels = [Panel(title, "", [Line("rate", [1, 2], [1.0, 2.0], "blue")])] * 4
    sections = [Section("trend", "", "", [Series("trend", "all", panels, "iteration", (1, 2))])]
    figure = png._figure(replace(report_of(tmp_path, sample_run()), sections=sections))
    figure.canvas.draw()
    drawn = [(axes.get_window_extent(), axes._left_title.get_window_extent()) for axes in figure.axes]
    assert all(words.x1 <= panel.x1 for panel, words in drawn)
    upper, lower = figure.axes[0].xaxis.label.get_window_extent(), drawn[2][1]
    assert lower.y1 < upper.y0


def test_marks_of_an_axis_are_told_apart() -> None:
    """Of shares that hardly differ, and of powers: no two alike, none over another; one point is seen."""
    share = Panel("MFU", "share", [Line("MFU", [1, 20], [0.0501, 0.0509], "blue")])
    sizes = Panel("Time", "us", [Line("all_reduce", [1 << 20], [1500.0], "blue")])
    wide = Panel(
        "Time", "us", [Line("all_reduce", [1 << n for n in range(32)], [1.5**n for n in range(32)], "blue")]
    )
    for panel, is_log in ((share, False), (wide, True), (sizes, True)):
        figure = Figure(figsize=(16, 4))
        axes = png._axes(figure, png._LEFT, 1.0, png._PANEL_WIDTH, png._PANEL_INCH)
        png._lines(axes, panel, Series("k", "all", [panel], "bytes", None, is_log=is_log))
        FigureCanvasAgg(figure).draw()
        for axis in (axes.xaxis, axes.yaxis):
            ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
            shown = [tick.label1 for tick in ticks if tick.label1.get_text()]
            inside = [each for each in shown if axes.bbox.padded(20).overlaps(each.get_window_extent())]
            boxes = [each.get_window_extent() for each in inside]
            assert len({each.get_text() for each in inside}) == len(inside) > 1
            assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert axes.lines[0].get_marker() == "o"


def test_parts_that_are_zero_everywhere_are_left_out() -> None:
    areas = [Line(name, [1, 2], [value, value], "blue", "area") for name, value in (("a", 1.0), ("b", 0.0))]
    axes, panel = Figure().add_subplot(), Panel("Step", "ms", areas)
    png._lines(axes, panel, Series("phases", "all", [panel], "iteration", None))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a"]


def test_names_of_a_heat_map_are_whole_inside_the_figure_and_off_the_next_panel() -> None:
    rows = ["Qwen3ForCausalLMWithALongName", *(f"layer {number}" for number in range(30))]
    columns = [f"self_attention.post_layernorm.{number}" for number in range(8)]
    heat = HeatMap(
        "k",
        "Layers",
        "layer",
        rows,
        "module",
        None,
        list(range(9)),
        columns=columns,
        layers=[Layer("whole step", "ms", [[1.0] * 8 for _ in rows])],
    )
    room = room_of(heat, png._PANEL_WIDTH * 16, 16, png._PANEL_INCH)
    figure = Figure(figsize=(16, 10))
    axes = png._axes(figure, png._LEFT, 4.0, png._PANEL_WIDTH, room.height)
    draw(axes, heat)
    FigureCanvasAgg(figure).draw()
    names = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert axes.yaxis.label.get_window_extent().x0 >= 0
    assert max(name.x0 for name in names) >= axes.yaxis.label.get_window_extent().x1
    assert all(upper.y0 >= lower.y1 - 1 for upper, lower in pairwise(names))
    below_inch = (axes.get_window_extent().y0 - axes.xaxis.label.get_window_extent().y0) / figure.dpi
    assert (
        below_inch <= png._BELOW_INCH + room.below + png._TOP_INCH - 0.5
    )  # half an inch is the next title's
