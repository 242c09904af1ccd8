"""What the commands call for a training, from one run file."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.compare.blocks import report_of
from flagscale_perf.analysis.compare.compare import CompareOptions
from flagscale_perf.analysis.job import Job, open_session
from flagscale_perf.analysis.timeline import Item
from flagscale_perf.training.analysis.instrument import INSTRUMENT
from tests.run_files import steady, write


def run_file(directory: Path) -> Path:
    return write(directory / "perf_records_20240129_103000.jsonl", steady(40))


def test_a_report_of_one_file_and_of_a_directory(tmp_path: Path) -> None:
    path = run_file(tmp_path)
    assert INSTRUMENT.report(open_session(path)).title == "Run 20240129_103000"
    assert (
        INSTRUMENT.sessions(Job(tmp_path).sessions()).title
        == f"1 session in {tmp_path}, as restarts of one experiment"
    )


def test_a_comparison_and_what_is_shown_of_it(tmp_path: Path) -> None:
    path = run_file(tmp_path)
    result = INSTRUMENT.compare([open_session(path)], [open_session(path)], CompareOptions())
    assert result.whole.verdict == "undecided"
    sections = report_of(result).sections
    assert [section.key for section in sections] == ["times", "trend", "phases", "figures", "runs"]


def test_a_session_that_is_followed_and_its_timeline(tmp_path: Path) -> None:
    run = open_session(run_file(tmp_path))
    live = INSTRUMENT.live(run.header)
    for record in run:
        live.add(record)
    assert live.before() == "session 20240129_103000 before it: ended after iteration 40"
    rows = {item.track.name for item in INSTRUMENT.timeline(run).items(run) if isinstance(item, Item)}
    assert {"iterations", "phases, end to end"} <= rows
