"""The jobs of one command: one, or those of a sweep (`run.py -m KEY=A,B`), one after another."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from flagscale_perf.launcher.actions import perform
from flagscale_perf.launcher.cluster import OpenRunner
from flagscale_perf.launcher.config import read_asked, read_job
from flagscale_perf.launcher.plan import make_plan
from flagscale_perf.spine.errors import PerfError

_STARTING = ("run", "test")
_WRITTEN = ("save", "tensorboard_dir")  # what two jobs must not both write into, beside their own directories
_INTERRUPTED = 130
Refuse: TypeAlias = Callable[[PerfError], None]


@dataclass(frozen=True)
class OneJob:
    """A job of the command.

    Attributes:
        config: the resolved configuration.
        overrides: those of the command line that made it.
    """

    config: Mapping[str, Any]
    overrides: Sequence[str]


def perform_all(jobs: Sequence[OneJob], open_runner: OpenRunner, refuse: Refuse) -> int:
    """Does what each job's action says; `refuse` tells of a job of several that is wrong. Returns the exit
    status of the first that failed, else 0.

    Raises PerfError before anything is started, where one of them is wrong or two would write into the same
    directory; of a single job as `perform` does.
    """
    if len(jobs) == 1:
        return perform(jobs[0].config, open_runner)
    common = set.intersection(*(set(job.overrides) for job in jobs)) if jobs else set()
    names = [" ".join(word for word in job.overrides if word not in common) for job in jobs]
    _check_apart(jobs, names)
    failed: dict[str, int] = {}
    for number, (job, name) in enumerate(zip(jobs, names, strict=True), 1):
        print(f"\njob {number} of {len(jobs)}: {name}", flush=True)
        if code := _perform_one(job, open_runner, refuse):
            failed[name] = code
        if code == _INTERRUPTED:
            print(f"interrupted: {len(jobs) - number} jobs of the sweep were not started", flush=True)
            return code
    for name, code in failed.items():
        print(f"failed with exit status {code}: {name}", flush=True)
    if jobs:
        print(f"{len(jobs) - len(failed)} of {len(jobs)} jobs of the sweep ended well", flush=True)
    return next(iter(failed.values()), 0)


def _perform_one(job: OneJob, open_runner: OpenRunner, refuse: Refuse) -> int:
    try:
        return perform(job.config, open_runner)
    except PerfError as error:  # the others do not depend on this one
        refuse(error)
        return 2


def _check_apart(jobs: Sequence[OneJob], names: Sequence[str]) -> None:
    users: dict[tuple[str, str], str] = {}
    for job, name in zip(jobs, names, strict=True):
        for key, directory in _directories(job).items():
            other = users.setdefault((key, os.path.realpath(directory)), name)
            if other is not name:
                raise PerfError(
                    f"{key}: the jobs {other!r} and {name!r} of this sweep would both write into"
                    f" {directory!r}; give each its own, for example"
                    " experiment.exp_dir='./outputs/${hydra.job.num}'"
                )


def _directories(job: OneJob) -> dict[str, str]:
    """The directories that this job alone may write into, by the key that names them."""
    asked = read_asked(job.config, os.getcwd())
    found = {"experiment.exp_dir": asked.paths.exp_dir, "train.system.logging.log_dir": asked.paths.log_dir}
    if asked.action == "stop":
        return found
    whole = read_job(job.config, os.getcwd())
    if asked.action in _STARTING and (whole.background or whole.hostfile is not None):
        key = "hostfile" if whole.hostfile is not None else "background"
        raise PerfError(
            f"experiment.runner.{key}: the jobs of a sweep run one after another, and with it all would be"
            f" started at once on the same devices; write experiment.runner.{key}=null, or start them one"
            " by one"
        )
    settings = make_plan(whole, os.environ).settings
    return found | {
        settings[key].path: str(settings[key].value)
        for key in _WRITTEN
        if key in settings and settings[key].value is not None and asked.action == "run"
    }
