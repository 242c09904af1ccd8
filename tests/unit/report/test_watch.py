"""The screen, compared as a whole."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.blocks import Report, Section, StackedBar, Stripe
from flagscale_perf.report.watch import Frame, as_text
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.training.analysis.live import LiveRun
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rank_records import RanksRecord, StragglerRecord
from tests.fakes import MS, SECOND, make_event, make_facts, make_header, make_interval, make_step
from tests.golden import golden

NOW_NS = 1_706_524_200 * SECOND + 5 * SECOND
HOSTILE = "\x1b]0;evil\x07[bold]\u202e"


def rising_run(**facts) -> LiveRun:
    run = LiveRun(make_header(facts=make_facts(**facts)))
    phases_ns = dict.fromkeys(PHASES) | {
        "forward": 300 * MS,
        "backward": 600 * MS,
        "optimizer": 50 * MS,
        "between_steps": 50 * MS,
    }
    for number in range(1, 5):
        run.add(make_interval(10 * number, tokens=10240 * number, phases_ns=phases_ns))
    run.add(make_step(40))
    return run


def troubled_run() -> LiveRun:
    run = rising_run()
    nothing: list[int | None] = [None] * 8
    work: list[int | None] = [80 * MS, 80 * MS, 81 * MS, 120 * MS, 80 * MS, None, 82 * MS, 80 * MS]
    run.add(RanksRecord(31, 40, 1, nothing, work, nothing, nothing, nothing, [5], 1))
    run.add(
        StragglerRecord(
            21,
            40,
            False,
            [3],
            "node0",
            "H200",
            0,
            "forward",
            40 * MS,
            120 * MS,
            "peers",
            None,
            "clock capped by power",
        )
    )
    run.add(
        make_event(
            "slow",
            at_ns=2 * SECOND,
            text="steps 11 to 20 took 18 % longer; observed: rank 0's clock capped by power",
        )
    )
    run.add(make_event("failure", at_ns=3 * SECOND, text=f"summary: {HOSTILE}"))
    return run


@pytest.mark.parametrize(("width", "name"), [(100, "watch.txt"), (48, "watch_narrow.txt")])
def test_the_whole_screen(width: int, name: str) -> None:
    shown = as_text(
        Frame(troubled_run().report(True, NOW_NS), ("perf_records_20240129_103000.jsonl",)), width
    )
    assert shown == golden(name)
    assert max(map(len, shown.splitlines())) <= width


def test_a_killed_run_says_so() -> None:
    first, why, *_ = as_text(Frame(rising_run().report(False, NOW_NS)), 120).splitlines()
    assert first == "KILLED  session 20240129_103000"
    assert why == "no end was recorded and the run file is no longer written: trainer and writer were killed"


def test_an_ended_run_has_no_time_left() -> None:
    run = rising_run()
    run.add(RunEnd("completed", NOW_NS, 40, 0))
    lines = as_text(Frame(run.report(False, NOW_NS + SECOND)), 70).splitlines()
    assert (lines[0], lines[2]) == ("COMPLETED  session 20240129_103000", "iteration 40 of 100, 40.0 %")


def test_before_anything_is_known() -> None:
    assert as_text(Frame(None), 80) == "waiting for the first record of the run\n"
    assert "no interval has ended yet" in as_text(Frame(LiveRun(make_header()).report(True, NOW_NS)), 80)


def test_nothing_in_it_moves_the_cursor_or_is_taken_for_markup() -> None:
    run = rising_run(script=HOSTILE, device=HOSTILE, hostname=HOSTILE)
    run.add(make_event(HOSTILE, text=HOSTILE))
    run.add(RunEnd(HOSTILE, NOW_NS, 40, 0))
    shown = as_text(Frame(run.report(False, NOW_NS), (HOSTILE,)), 200)
    assert not set(shown) & set("\x1b\x07\u202e")
    assert shown.count("\\x1b]0;evil\\x07[bold]\\u202e") == 6
    assert shown.splitlines()[0].startswith("\\X1B]0;EVIL")


@pytest.mark.parametrize("width", range(20, 121))
def test_nothing_is_wider_than_the_terminal_and_no_figure_is_cut(width: int) -> None:
    lines = as_text(Frame(troubled_run().report(True, NOW_NS), ("a note",)), width).splitlines()
    assert max(map(len, lines)) <= width
    if width >= 26:
        rows = {" ".join(line.split()[:4]) for line in lines}
        assert any(row.startswith("iteration 100.0 ms") for row in rows)
        assert any(row.startswith("peak memory 3.00 GB") for row in rows)
        assert "…" not in "".join(lines)


@pytest.mark.parametrize(("share", "cells"), [(1e9, 60), (-1.0, 0), (float("nan"), 0), (float("inf"), 60)])
def test_a_bar_is_never_wider_than_the_screen(share: float, cells: int) -> None:
    bar = StackedBar("", "", [Stripe("", None, share, "green")])
    report = Report("run", [], [Section("goodput", "", "", [bar])], None)
    assert as_text(Frame(report), 60).splitlines()[1] == "█" * cells
