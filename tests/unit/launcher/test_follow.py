import io
import os
import shutil
import subprocess
from datetime import datetime

import pytest

from flagscale_perf.launcher.follow import Follower, Progress, is_row, is_row_since, iteration_of

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
    assert [is_row(line) for line in (ROW, HEADING, "-" * 80, "")] == [True, False, False, False]


def test_rows_of_an_earlier_job_are_told_by_their_time() -> None:
    start = datetime(2024, 1, 29, 10, 30, 15, 999)
    lines = [ROW, ROW.replace("10:30:15", "10:30:14"), HEADING]
    assert [is_row_since(line, start) for line in lines] == [True, False, False]
    assert [is_row_since(line, None) for line in lines] == [True, True, False]


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


def follow(tmp_path, is_terminal, code):
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


def test_plain_lines_where_there_is_no_terminal(tmp_path) -> None:
    # The row first: a look in between would show the bar, which is right where there is no row yet.
    code = '(echo "$HEADING"; echo "$ROW") >>perf/perf_realtime.log; echo "$HOST" >>output; exit 3'
    status, progress, shown = follow(tmp_path, False, code)
    assert (status, progress.iteration, progress.iterations, progress.rows) == (3, 34, 60, 1)
    assert shown == f"{HEADING}\n{ROW}\n"


def test_iterations_are_shown_where_the_monitor_writes_nothing(tmp_path) -> None:
    assert (
        follow(tmp_path, False, 'echo "$HOST" >>output')[2] == "[#############...........] iteration 34/60\n"
    )


def test_terminal_has_the_last_row_above_the_bar_in_one_place(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((61, 24)))
    _, _, shown = follow(
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
    assert follow(tmp_path / "plain", False, code)[2].startswith(said)
    assert said in follow(tmp_path / "terminal", True, code)[2]
