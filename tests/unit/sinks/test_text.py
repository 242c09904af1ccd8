"""The session's text log and its rotation."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.sinks.text import MetricsSink
from tests.fakes import make_context, make_header, make_interval
from tests.golden import golden

HEADING = "".join(golden("perf_metrics_events.log").splitlines(keepends=True)[:6])


def steps_in(path: Path) -> list[int]:
    text = path.read_text()
    assert text.startswith(HEADING)
    return [int(line.split()[2]) for line in text.removeprefix(HEADING).splitlines()]


def test_parts_move_up_and_every_line_is_in_one_of_them_below_a_heading(tmp_path: Path) -> None:
    sink = MetricsSink(make_context(make_header(), tmp_path, print), max_bytes=len(HEADING) + 2 * 140)
    for number in range(1, 8):
        sink.write(make_interval(number * 10))
        sink.flush()
    sink.close()
    stem = "perf_metrics_20240129_103000"
    parts = [tmp_path / f"{stem}.log", *[tmp_path / f"{stem}.{n}.log" for n in (1, 2, 3)]]
    assert [steps_in(part) for part in parts] == [[70], [50, 60], [30, 40], [10, 20]]
    assert sorted(tmp_path.iterdir()) == sorted(parts)


def test_a_second_process_of_the_session_goes_on_without_a_heading(tmp_path: Path) -> None:
    for resumed, number in ((False, 10), (True, 20)):
        sink = MetricsSink(make_context(make_header(), tmp_path, print, resumed=resumed))
        sink.write(make_interval(number))
        sink.flush()
        sink.close()
    assert steps_in(tmp_path / "perf_metrics_20240129_103000.log") == [10, 20]
