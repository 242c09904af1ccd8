"""The task of a traced job's writer."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.spine.packages import versions
from flagscale_perf.trace.options import LEVEL_VARIABLE, TraceOptions
from flagscale_perf.writer.membership import Job
from flagscale_perf.writer.task import WriterTask

WRITER = "flagscale_perf.trace.recording"
PACKAGES = ("TransferQueue", "verl", "ray", "torch", "tensordict")
TRACE, DETAIL, STDOUT, LEVEL = "trace_functions", "trace_operations", "trace_stdout", "trace_level"


def job_of(options: TraceOptions) -> Job:
    """The job that processes traced with these options join."""
    return Job(
        instrument="trace",
        writer=WRITER,
        directory=options.directory,
        name=options.job,
        make_task=lambda: trace_task(options),
        to_stdout=options.to_stdout,
    )


def trace_task(options: TraceOptions) -> WriterTask:
    """Raises PerfError for an invalid monitor option in the environment."""
    config = replace(PerfConfig.from_args({}), perf_log_dir=str(options.directory)).as_dict()
    config |= {
        TRACE: options.trace,
        DETAIL: options.detail,
        STDOUT: options.to_stdout,
        LEVEL: os.environ.get(LEVEL_VARIABLE, ""),
    }
    facts: dict[str, Any] = {
        "job": options.job,
        "versions": versions(PACKAGES),
        "machine": os.uname().nodename,
        "sampling": {"every": options.every, "ratio": options.ratio, "slow_ns": options.slow_ns},
    }
    return WriterTask.of(config, facts, str(options.directory), None)
