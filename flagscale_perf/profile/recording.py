"""The `Instrument` of profiled ranks; run as a module, it is the job's writer process on this machine."""

from __future__ import annotations

from typing import Any

from flagscale_perf.profile.records import NAMES, StepRecord
from flagscale_perf.sinks.base import Presentation
from flagscale_perf.spine.figures import Table
from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.writer.process import serve_job
from flagscale_perf.writer.processes import ProcessesPipeline


def _not_shown(header: RunHeader) -> Any:
    raise NotImplementedError("the run file of a profile has no views")


class ProfilePipeline(ProcessesPipeline):
    """Passes on ranks, and the steps, rows, collectives and memory of their windows."""

    name = "profile"
    presentation = Presentation(
        "Profiled ranks",
        Table(StepRecord, "number", "", _not_shown, ()),
        _not_shown,
        _not_shown,
        _not_shown,
        views=(),
    )
    numbered = tuple(NAMES)
    recorded = (*numbered, NameRecord)
    things = "records"
    steps = (StepRecord,)
    period_s = 0.1  # a window's rows come at once, and may be more than a ring holds


if __name__ == "__main__":
    serve_job(ProfilePipeline)
