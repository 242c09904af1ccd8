"""Traces while they are made."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.blocks import Note, Series, StackedBar
from flagscale_perf.report.watch import Frame, as_text
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.store.run_file import RunFile
from flagscale_perf.trace.analysis.live import LiveTraces
from tests.golden import golden
from tests.trace_runs import MIB, MS, SECOND, START_WALL_NS, Job, make_trace_header, pipeline


def _live(path: Path) -> LiveTraces:
    run = RunFile(path)
    live = LiveTraces(run.header)
    for record in run:
        if not isinstance(record, RunHeader):
            live.add(record)
    return live


def test_the_screen(tmp_path: Path) -> None:
    live = _live(pipeline(steps=20).write(tmp_path, end=None))
    report = live.report(True, START_WALL_NS + 10 * SECOND)
    assert as_text(Frame(report, ("perf_records.jsonl",)), 100) == golden("trace_watch.txt")


def test_seconds_are_summed_and_the_unfinished_one_waits(tmp_path: Path) -> None:
    live = _live(pipeline(steps=20).write(tmp_path, end=None))
    blocks = live.report(True, START_WALL_NS).sections[0].blocks
    series = blocks[0]
    assert isinstance(series, Series)
    assert [list(panel.lines[0].y) for panel in series.panels] == [[10] * 3, [5.0] * 3, [10.0] * 3]
    assert sum(isinstance(block, StackedBar) for block in blocks) == 2


def test_nothing_yet_and_a_writer_that_is_gone() -> None:
    live = LiveTraces(make_trace_header())
    report = live.report(False, START_WALL_NS)
    assert (report.state, report.tone, report.sections[0].blocks) == (
        "killed",
        "bad",
        [Note("no call and no operation yet")],
    )
    assert live.report(True, START_WALL_NS + 5000 * MS).facts[1] == Note("nothing for 5.0 s", "warn")
    assert live.before() == "before: session 20240129_103000, 0 calls"


def test_bytes_that_are_not_known_are_no_bytes_of_0(tmp_path: Path) -> None:
    job = Job()
    process = job.process("W", 1)
    for second, size_bytes in enumerate((MIB, None, MIB)):
        job.put(process, second * SECOND, range(4), size_bytes=size_bytes)
    series = _live(job.write(tmp_path)).report(True, START_WALL_NS).sections[0].blocks[0]
    assert isinstance(series, Series)
    assert list(series.panels[2].lines[0].y) == [1.0, None, 1.0]
