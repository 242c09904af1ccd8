"""The console gets the log's lines."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.sinks.console import ConsoleSink
from tests.fakes import make_context, make_facts, make_header, sample_intervals
from tests.golden import golden


def test_it_gets_the_very_lines_of_the_text_log(tmp_path: Path) -> None:
    lines: list[str] = []
    sink = ConsoleSink.open(
        make_context(
            make_header(facts=make_facts(peak_flop_per_s=2.5e14), perf_console_output=True),
            tmp_path,
            lines.append,
        )
    )
    assert sink is not None
    for interval in sample_intervals():
        sink.write(interval)
        sink.flush()
    assert lines == golden("perf_metrics.log").splitlines()
