"""The live log: bounded in place, shared, continued by the next session."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.sinks import realtime
from flagscale_perf.sinks.realtime import RealtimeSink
from tests.fakes import make_context, make_facts, make_header, make_interval
from tests.golden import golden

HEADING = "".join(golden("perf_metrics_events.log").splitlines(keepends=True)[:6])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch):
    now = [0]
    monkeypatch.setattr(realtime, "monotonic_ns", lambda: now[0])
    return now


def write(sink: RealtimeSink, iteration: int) -> None:
    sink.write(make_interval(iteration))
    sink.flush()


def steps_in(text: str) -> list[str]:
    return [line.split()[2] for line in text.splitlines() if line.startswith("2024")]


def test_the_file_is_emptied_in_place_before_a_line_that_would_pass_its_bound(
    tmp_path: Path, clock: list[int]
) -> None:
    sink = RealtimeSink(make_context(make_header(), tmp_path, print), max_bytes=len(HEADING) + 3 * 140)
    path = tmp_path / "perf_realtime.log"
    seen, inodes = [], set()
    for iteration in range(1, 8):
        clock[0] += realtime.FOLLOWER_TIME_NS
        write(sink, iteration)
        text = path.read_text()
        assert text.startswith(HEADING)
        seen.append(steps_in(text))
        inodes.add(path.stat().st_ino)
    sink.close()
    assert seen == [["1"], ["1", "2"], ["1", "2", "3"], ["4"], ["4", "5"], ["4", "5", "6"], ["7"]]
    assert len(inodes) == 1


def test_a_follower_gets_time_to_read_the_last_lines(tmp_path: Path, clock: list[int]) -> None:
    sink = RealtimeSink(make_context(make_header(), tmp_path, print), max_bytes=len(HEADING) + 140)
    clock[0] = realtime.FOLLOWER_TIME_NS
    for iteration in (1, 2, 3):
        write(sink, iteration)
    assert steps_in((tmp_path / "perf_realtime.log").read_text()) == ["1", "2", "3"]
    clock[0] += realtime.FOLLOWER_TIME_NS
    write(sink, 4)
    sink.close()
    assert steps_in((tmp_path / "perf_realtime.log").read_text()) == ["4"]


def test_the_next_session_goes_on_below_a_separator(tmp_path: Path) -> None:
    for session, resumed in (("20240129_103000", 0), ("20240129_103000_2", 1)):
        sink = RealtimeSink(
            make_context(make_header(session, make_facts(resume_iteration=resumed)), tmp_path, print)
        )
        write(sink, resumed + 1)
        sink.close()
    first, second = (
        (tmp_path / "perf_realtime.log")
        .read_text()
        .split("# session 20240129_103000_2, resumed after iteration 1\n")
    )
    assert (first.startswith(HEADING), second.startswith(HEADING), steps_in(first), steps_in(second)) == (
        True,
        True,
        ["1"],
        ["2"],
    )


def test_each_session_begins_with_the_titles_of_its_own_columns(tmp_path: Path) -> None:
    for session, columns in (("20240129_103000", None), ("20240129_103000_2", "mfu,tokens_per_s")):
        sink = RealtimeSink(make_context(make_header(session, perf_columns=columns), tmp_path, print))
        write(sink, 1)
        sink.close()
    first, second = (
        line for line in (tmp_path / "perf_realtime.log").read_text().splitlines() if "Step" in line
    )
    assert first.split()[:4] == ["Timestamp", "Step", "TFLOPS/GPU", "TFLOPS"]
    assert second.split() == ["Timestamp", "Step", "MFU(%)", "Tokens/s"]
