"""The `analysis.Instrument` of experiments: what the commands that read run files call."""

from __future__ import annotations

from flagscale_perf.analysis.instrument import Instrument
from flagscale_perf.analysis.timeline import Timeline
from flagscale_perf.bench.analysis import compare
from flagscale_perf.bench.analysis.report import read_report, report_of

INSTRUMENT = Instrument(
    leads=-1,
    report=lambda session: report_of(read_report(session)),
    timeline=Timeline,
    compare=compare.compare,
    what="a file of experiments",
)
