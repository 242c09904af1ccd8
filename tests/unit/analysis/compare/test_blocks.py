"""Comparisons of two sides, in every format."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest

from flagscale_perf.analysis.compare.blocks import report_of
from flagscale_perf.analysis.compare.compare import (
    CompareOptions,
    Comparison,
    Disturbance,
    Gate,
    large_parts,
)
from flagscale_perf.analysis.compare.judge import Needed
from flagscale_perf.report import html, json, markdown, png, text
from flagscale_perf.report.format import shown
from flagscale_perf.training.analysis import compare as of_instrument
from tests.compared import of_paths
from tests.fakes import make_interval
from tests.golden import golden
from tests.run_files import steady, write
from tests.unit.report.test_html import Page

compare = of_paths(of_instrument.compare)


def sample(directory: Path) -> Comparison:
    """A backward that takes 6 ms more in steps of 100 ms, with two options changed; the names of the files
    without the directory.
    """
    intervals = [make_interval(number) for number in (20, 40, 60)]
    base = write(directory / "base.jsonl", [*steady(60), *intervals])
    new = write(
        directory / "new.jsonl",
        [*steady(60, more_backward_ms=6), *intervals],
        {"perf_breakdown": True},
        hostname="node<1>",
    )
    result = compare([base], [new], CompareOptions(fail_if_slower=0.03))
    runs = [
        [replace(run, path=Path(run.path).name) for run in side]
        for side in (result.base_runs, result.new_runs)
    ]
    return replace(result, base_runs=runs[0], new_runs=runs[1])


@pytest.mark.parametrize(
    ("name", "render"),
    [("compare.txt", text.render), ("compare.json", json.render)],
)
def test_every_format_is_as_promised(tmp_path, name, render) -> None:
    assert render(report_of(sample(tmp_path))) == golden(name)


def test_hostile_text_moves_no_cursor_and_makes_no_markdown(tmp_path) -> None:
    result = sample(tmp_path)
    run = replace(result.new_runs[0], path="a|b\x1b[2J<img src=x>\n# no")
    hostile = replace(result, new_runs=[run])
    assert "a|b\\x1b[2J<img src=x>\\x0a# no" in text.render(report_of(hostile))
    assert r"a\|b\\x1b\[2J&#60;img src=x&#62;\\x0a&#35; no" in markdown.render(report_of(hostile))


def test_what_is_undecided_is_said_with_its_interval_and_what_would_decide_it(tmp_path) -> None:
    path = write(tmp_path / "run", steady(60))
    other = write(tmp_path / "other", steady(60, more_backward_ms=2.5), hostname="node1")
    report = report_of(compare([path], [other], CompareOptions()))
    change = "change +2.50 %, 95 % interval -0.34 % to +5.42 %"
    assert shown(report.title) == f"Undecided whether NEW is slower than BASE: {change}"
    said = text.render(report)
    assert said.count(change) == 1
    mean = "by the mean: +2.50 %, 95 % interval -0.34 % to +5.42 %, no difference shown; rates change by"
    assert f"{mean} -2.44 % (-5.14 % to +0.34 %)" in " ".join(said.split())
    assert (
        "  every iteration of NEW is slower than every one of BASE: these runs differ;"
        " that may be noise between runs\n"
        "  slower or faster: if the change is as large as it seems, about 4 runs a side would decide it\n"
    ) in said
    limited = compare([path], [other], CompareOptions(fail_if_slower=0.06))
    assert shown(report_of(limited).title) == f"NEW is not slower than BASE by more than 6.00 %: {change}"
    narrow = text.render(report_of(compare([path], [other], CompareOptions(fail_if_slower=0.01))))
    assert "UNDECIDED: the interval reaches beyond 1.00 %" in narrow
    assert "slower or faster" not in narrow


def test_a_rate_has_no_change_where_no_time_is_left(tmp_path) -> None:
    def rates(share: float, low: float) -> str:
        result = sample(tmp_path)
        mean = replace(result.mean, share=share, share_low=low, share_high=0.0)
        said = text.render(report_of(replace(result, mean=mean)))
        return said.partition("rates change by ")[2].partition("\n")[0]

    assert rates(-0.5, -0.75) == "+100.00 % (+0.00 % to +300.00 %)"
    assert rates(-0.9, -1.2) == "+900.00 % (+0.00 % to -)"
    assert rates(-1.0, -1.0) == "- (+0.00 % to -)"


def test_parts_within_the_noise_that_make_up_much_of_a_change_are_named(tmp_path) -> None:
    result = sample(tmp_path)
    (backward,) = (row for row in result.phases if row.name == "backward")
    small = replace(backward, name="optimizer", change=0.5, verdict="undecided")
    large = replace(backward, name="forward", change=0.7, verdict="undecided")
    assert large_parts(result.whole, [backward, small, large]) == [large]
    assert large_parts(replace(result.whole, verdict="undecided"), [large]) == []
    said = text.render(report_of(replace(result, large_parts=[large, small])))
    assert "changed as well, each perhaps by chance: forward +0.700, optimizer +0.500 ms" in said


def test_several_runs_of_a_side_have_their_spread(tmp_path) -> None:
    files = [write(tmp_path / str(n), steady(40, n), pid=n) for n in range(6)]
    result = compare(files[:3], files[3:], CompareOptions())
    said = text.render(report_of(result))
    assert "; BASE's runs 100.00 to 102.00 ms; NEW's runs 103.00 to 105.00 ms" in " ".join(said.split())
    # 3 runs a side, each about 1 % from the next: 4 degrees of freedom
    noise = (stdev(map(math.log, (100, 101, 102))) ** 2 + stdev(map(math.log, (103, 104, 105))) ** 2) / 2
    assert result.noise == pytest.approx(noise**0.5)
    assert result.whole.base_high / result.whole.base == pytest.approx(
        math.exp(2.776 * (noise / 3) ** 0.5), rel=1e-4
    )


def test_where_a_run_changed_within_itself_is_said(tmp_path) -> None:
    base = write(tmp_path / "base", steady(60))
    new = write(tmp_path / "new", [*steady(40, 5), *steady(20, 205, first=41)[1:]], hostname="node1")
    report = report_of(compare([base], [new], CompareOptions()))
    assert shown(report.title) == (
        "NEW is slower by 5.00 % up to iteration 40, above all in backward, slower by 207.07 % from iteration"
        " 42 on"
    )
    assert (
        "NEW changed within itself: median 105.00 up to iteration 40, 304.00 after it (20240129_103000)"
    ) in text.render(report)


def test_other_sizes_and_missing_phases_are_said(tmp_path) -> None:
    base = write(tmp_path / "base", steady(40))
    new = write(tmp_path / "new", [step for step in steady(40) if hasattr(step, "tokens")], world_size=16)
    shown = text.render(report_of(compare([base], [new], CompareOptions())))
    assert (
        "the runs differ in model, batch or world size: times are GPU-us/token, not ms per iteration" in shown
    )
    assert "no phases: not every run has them (--perf-breakdown records them)" in shown


def test_the_figure_has_both_runs(tmp_path) -> None:
    assert png.render(report_of(sample(tmp_path))).startswith(b"\x89PNG")


def test_nothing_leaves_the_page(tmp_path) -> None:
    result = sample(tmp_path)
    run = replace(result.new_runs[0], path='"><script>alert(1)</script><img src=x onerror=alert(1)>\x1b')
    page = Page(html.render(report_of(replace(result, new_runs=[run]))))
    assert len(page.scripts) == 3  # ours
    assert page.attributes("src") == []
    assert any("<script>alert(1)</script><img src=x" in shown_text for shown_text in page.texts)


def test_each_answer_of_the_gate_is_said(tmp_path) -> None:
    def said(gate: Gate, **changed: Any) -> str:
        report = report_of(replace(sample(tmp_path), gate=gate, **changed))
        return shown(report.facts[0].text)

    assert said(Gate(0.03, "slower")) == "SLOWER: by more than noise, and by more than 3.00 %"
    assert said(Gate(0.1, "not slower")) == "NOT SLOWER: the whole interval lies below 10.00 %"
    reaches = "UNDECIDED: the interval reaches beyond 7.00 %; "
    both = "about 400 iterations of each run instead of 50 or about 5 runs a side would decide it"
    assert said(Gate(0.07, "undecided", Needed(5, 400))) == (
        f"{reaches}if the change is as large as it seems, {both}"
    )
    assert said(Gate(0.07, "undecided", Needed(None, None))) == (
        f"{reaches}with this noise not even 100 runs a side would tell the change from the limit;"
        " 3 runs a side, in turns on a quiet host, would show the true noise"
    )
    (run,) = sample(tmp_path).base_runs
    assert said(Gate(0.07, "undecided", Needed(None, None)), base_runs=[run] * 3, new_runs=[run] * 3) == (
        f"{reaches}with this noise not even 100 runs a side would tell the change from the limit"
    )
    assert said(Gate(0.07, "undecided"), same_run="20240129_103000") == (
        "UNDECIDED: a run compared with itself shows nothing; name two runs"
    )


def test_a_mean_beyond_the_limit_is_said_beside_a_median_that_is_not(tmp_path) -> None:
    result = replace(sample(tmp_path), gate=Gate(0.05, "not slower"))  # mean +6 %
    assert shown(report_of(result).facts[1].text) == (
        "but the mean iteration changed by +6.00 %: slow ones count there, and --judge mean judges it"
    )
    assert "but the mean" not in text.render(report_of(replace(result, judged="mean")))


def test_a_phase_shows_its_change_with_the_interval_to_one_scale(tmp_path) -> None:
    times, *_ = report_of(sample(tmp_path)).sections[0].blocks
    whole, *phases = (row[1] for row in times.rows)
    assert (shown(whole), whole.limit) == ("+6.00 % (+3.07 % to +9.02 %)", 0.03)
    assert {phase.limit for phase in phases} == {None}
    assert {phase.reach for phase in phases} == {whole.reach} == {whole.high.value}


def test_a_shift_and_what_disturbed_a_run_are_in_the_title(tmp_path) -> None:
    base = write(tmp_path / "base", steady(60))
    new = write(tmp_path / "new", [*steady(40), *steady(20, 20, first=41)[1:]], hostname="node1")
    result = compare([base], [new], CompareOptions(fail_if_slower=0.05))
    apart = "NEW is as BASE up to iteration 40, slower by 20.20 % from iteration 42 on, above all in backward"
    assert shown(report_of(result).title) == apart
    said = text.render(report_of(result))
    assert "SLOWER from iteration 42 on: by more than noise, and by more than 5.00 %" in said
    assert "iterations 11 to 40: change +0.00 %, 95 % interval -3." in said
    assert "would decide it" not in said
    words = "{} was short of CPU for 41.0 % of the time"
    for side, suffix in (("NEW", f", but {words}: not comparable"), ("BASE", f", though {words}")):
        disturbed = replace(result, disturbed=[Disturbance(side, words.format(side), 0.41, side == "NEW")])
        assert shown(report_of(disturbed).title) == f"{apart}{suffix.format(side)}"
