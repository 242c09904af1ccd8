"""A job's output is shown as rows and a bar, or as plain lines where there is no terminal."""

import io
import os
import shlex
import shutil
import subprocess
from datetime import datetime
from types import SimpleNamespace

import pytest

from flagscale_perf.launcher import follow
from flagscale_perf.launcher.follow import (
    Follower,
    Progress,
    is_heading,
    is_row,
    is_row_or_remark,
    iteration_of,
)

HOST = (
    " [2026-11-21 01:10:57] iteration       34/      60 | consumed samples:          136 | lm loss: 6.5E+00 |"
)
HEADING = (
    "Timestamp            Step     TFLOPS/GPU   TFLOPS     Samples/s    Tokens/s     Time(ms)   Memory(GB)"
)
ROW = "2024-01-29 10:30:15  10       125.34       1002.72    512.0        1048576      235.5      42.50"


class Screen(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def test_iteration_of_the_hosts_line() -> None:
    assert iteration_of(HOST) == (34, 60)
    assert iteration_of("[default0]: [2026] iteration 5/ 10 | ") == (5, 10)
    assert iteration_of("saving checkpoint at iteration 5") is None


def test_rows_and_other_lines() -> None:
    lines = (
        ROW,
        f"# {ROW[:19]} end: completed after iteration 60",
        "# FLOPs causal_half",
        HEADING,
        "-" * 80,
        "",
    )
    assert [is_row(line) for line in lines] == [True, False, False, False, False, False]
    assert [is_row_or_remark(line) for line in lines] == [True, True, False, False, False, False]
    assert [is_heading(line) for line in lines] == [False, False, False, True, False, False]


def test_rows_of_an_earlier_job_are_told_by_their_time() -> None:
    start = datetime(2024, 1, 29, 10, 30, 15, 999)
    lines = [ROW, ROW.replace("10:30:15", "10:30:14"), HEADING]
    assert [is_row(line, start) for line in lines] == [True, False, False]
    assert [is_row(line) for line in lines] == [True, True, False]


@pytest.mark.parametrize(
    ("lines", "width", "bar"),
    [
        ([], 80, "[........................] starting"),
        ([HOST], 80, "[#############...........] iteration 34/60"),
        (
            [HOST, HEADING, ROW],
            80,
            "[#############...........] iteration 34/60  512.0 samples/s  1048576 tokens/s  235.5 ms"[:80],
        ),
        (
            [HOST, HEADING, ROW],
            120,
            "[#############...........] iteration 34/60  512.0 samples/s  1048576 tokens/s  235.5 ms",
        ),
        ([ROW], 80, "[........................] starting"),  # a row without a heading has no names
    ],
)
def test_bar(lines, width, bar) -> None:
    progress = Progress()
    for line in lines:
        progress.host_line(line)
        progress.perf_line(line)
    assert progress.bar(width) == bar


def followed(tmp_path, is_terminal, code):
    screen = Screen(is_terminal)
    output, perf = tmp_path / "output", tmp_path / "perf"
    perf.mkdir()
    (perf / "perf_realtime.log").write_text("earlier\n")
    follower = Follower(str(output), str(perf), screen)
    process = subprocess.Popen(
        ["bash", "-c", code],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOST": HOST, "HEADING": HEADING, "ROW": ROW},
    )
    return follower.wait(process), follower.progress, screen.getvalue()


def test_before_the_first_iteration_the_bar_says_what_is_done_and_moves() -> None:
    progress = Progress("starting train_gpt.py")
    assert progress.bar(80) == "[........................] starting train_gpt.py"
    for line in ("[default0]:> building train, validation, and test datasets ...", "  lr .......... 0.001"):
        progress.host_line(line)
    doing = "building train, validation, and test datasets"
    assert progress.bar(80, 61.0) == f"[........................] {doing}, 61 s"
    assert progress.bar(80, 0.5, moves=True) == f"[..###...................] {doing}"
    assert progress.bar(80, 4.7, moves=True) == f"[.......................#] {doing}, 5 s"
    progress.host_line(HOST)
    assert progress.bar(80, 61.0, moves=True) == "[#############...........] iteration 34/60"


def test_where_there_is_no_terminal_the_log_s_own_lines_are_shown(tmp_path) -> None:
    lines = [
        "=" * 80,
        "Performance Monitor Session Started",
        HEADING,
        "-" * 80,
        "# FLOPs causal_half, fp32",
        ROW,
    ]
    more = [f"# {ROW[:19]} slow: rank 3", ROW, HEADING, ROW]  # a job that was restarted has its heading again
    code = (
        f"printf '%s\\n' {shlex.join(lines + more)} >>perf/perf_realtime.log; echo \"$HOST\" >>output; exit 3"
    )
    status, progress, shown = followed(tmp_path, False, code)
    assert (status, progress.iteration, progress.iterations, progress.rows) == (3, 34, 60, 3)
    assert shown.removeprefix("[........................] starting\n").splitlines() == [
        HEADING,
        ROW,
        more[0],
        ROW,
        ROW,
    ]


def test_iterations_are_shown_where_the_monitor_writes_nothing(tmp_path) -> None:
    shown = followed(tmp_path, False, 'echo "$HOST" >>output')[2]
    assert shown.splitlines()[-1] == "[#############...........] iteration 34/60"
    assert shown.count("iteration 34") == 1


@pytest.mark.parametrize(
    ("done", "after_s", "is_said"),
    [(0.09, 59.0, False), (0.1, 4.9, False), (0.1, 5.0, True), (0.0, 60.0, True), (0.5, 0.1, False)],
)
def test_a_line_where_the_log_leaves_a_gap(monkeypatch, done, after_s, is_said) -> None:
    clock_s = [100.0]
    monkeypatch.setattr(follow, "time", SimpleNamespace(monotonic=lambda: clock_s[0]))
    follower = Follower("/nowhere/output", "/nowhere/perf", Screen(False), Progress(iterations=1000))
    follower._print([], [], ended=False)
    clock_s[0], follower.progress.iteration = 100.0 + after_s, int(1000 * done)
    follower._print([], [], ended=False)
    assert len(follower.screen.getvalue().splitlines()) == 1 + is_said


def test_terminal_has_the_last_row_above_the_bar_in_one_place(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((61, 24)))
    _, _, shown = followed(
        tmp_path, True, '(echo "$HEADING"; echo "$ROW") >>perf/perf_realtime.log; echo "$HOST" >>output'
    )
    bar = "[#############...........] iteration 34/60  512.0 samples/s  1"
    assert shown.endswith(f"{ROW[:60]}\n{bar[:60]}\x1b[1A\r\x1b[J")
    assert HEADING not in shown
    assert max(len(line) for line in shown.replace("\x1b[1A", "").replace("\r\x1b[J", "\n").split("\n")) == 60


def test_what_the_monitor_says_stays(tmp_path) -> None:
    code = (
        'echo "[default0]:flagscale_perf: rehearsing" >>output; echo "flagscale_perf: changed" >>output; '
        'echo "$HOST" >>output'
    )
    said = "flagscale_perf: rehearsing\nflagscale_perf: changed\n"
    (tmp_path / "plain").mkdir()
    (tmp_path / "terminal").mkdir()
    assert said in followed(tmp_path / "plain", False, code)[2]
    assert said in followed(tmp_path / "terminal", True, code)[2]
