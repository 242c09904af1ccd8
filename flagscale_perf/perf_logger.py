"""Rank 0's way from records to files: the training's face of `writer.recorder`.

Run as a module, this file is the writer process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.ranks.blocks import RankIdentity
from flagscale_perf.training.ranks.identity import content_of
from flagscale_perf.writer.instrument import Instrument
from flagscale_perf.writer.recorder import Recorder, Writing
from flagscale_perf.writer.task import Parent, WriterTask

WRITER = "flagscale_perf.perf_logger"


def make_pipeline(task: WriterTask, parent: Parent | None) -> Instrument:
    """As `recording.pipeline.make_pipeline`, imported where records are written: a trainer's process mostly
    only starts the one that writes.
    """
    from flagscale_perf.training.recording import pipeline

    return pipeline.make_pipeline(task, parent)


class PerfLogger(Recorder):
    """A training's session: `step` and `event` are called on the training thread; nothing here raises or
    blocks it. A step is a StepRecord, and before it the MarksRecords of its phases.
    """

    @classmethod
    def start(
        cls,
        config: PerfConfig,
        facts: RunFacts,
        say: Callable[[str], None],
        identity: RankIdentity | None = None,
    ) -> PerfLogger:
        """Begins a session and returns at once; the files appear a moment later.

        Args:
            config: the options in force.
            facts: what the host knows about the run.
            say: prints one line on rank 0; called on a side thread.
            identity: rank 0's place among the ranks; None if it is the only one or its place is unknown.
        """

        def task() -> WriterTask:
            owner = None if identity is None else content_of(identity)
            return WriterTask.of(config.as_dict(), asdict(facts), config.perf_log_dir, owner)

        return cls.begin(Writing(WRITER, make_pipeline), task, say, config.perf_debug)


if __name__ == "__main__":
    from flagscale_perf.writer.process import serve

    serve(make_pipeline)
