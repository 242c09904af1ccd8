"""The functions that commands call to read run files of a training."""

from __future__ import annotations

from flagscale_perf.analysis.instrument import Instrument
from flagscale_perf.training.analysis import blocks, compare, history, pairs, patch, run_blocks
from flagscale_perf.training.analysis.changeable import ChangeableRun
from flagscale_perf.training.analysis.evidence import bounds_of
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.analysis.lake import TABLES
from flagscale_perf.training.analysis.live import LiveRun
from flagscale_perf.training.analysis.timeline import timeline
from flagscale_perf.training.analysis.tree import steps_of

INSTRUMENT = Instrument(
    leads=3,
    report=lambda session: blocks.report_of(read_report(session)),
    sessions=lambda listing: history.report_of(history.stitch(listing)),
    compare=compare.compare,
    trees=pairs.compare_trees,
    runs=run_blocks.listed,
    live=LiveRun,
    patch=patch.text_of,
    evidence=bounds_of,
    replayable=ChangeableRun,
    timeline=timeline,
    steps=steps_of,
    tables=TABLES,
)
