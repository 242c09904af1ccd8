"""The values of `action=`. Each action returns the exit status."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flagscale_perf.launcher import cluster
from flagscale_perf.launcher.config import Job, Setting, read_asked, read_job
from flagscale_perf.launcher.ended import explain, log_rows, reason, sessions, summary
from flagscale_perf.launcher.follow import Follower, Progress, is_row, iteration_of, last_lines
from flagscale_perf.launcher.job import (
    exit_code,
    job_elsewhere,
    refuse_if_running,
    running_job,
    start_job,
    started_at,
    stop_job,
    was_stopped,
    write_script,
)
from flagscale_perf.launcher.machine import Kills, Machine
from flagscale_perf.launcher.paths import ExperimentPaths
from flagscale_perf.launcher.plan import Plan, make_plan, perf_options
from flagscale_perf.launcher.preflight import check
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.session import REALTIME_FILE, by_age

_TEST_ITERATIONS = 2
# A trial neither loads nor leaves a checkpoint, profiles and captures nothing, logs every iteration, and has
# directories of its own.
_TRIAL = {
    "exit_interval": _TEST_ITERATIONS,
    "log_interval": 1,
    "perf_log_interval": 1,
    "perf_profile_steps": None,
    "perf_profile_ranks": None,
    "perf_capture_steps": None,
    "save": None,
    "load": None,
    "save_interval": None,
    "wandb_project": None,
    "perf_log_dir": "logs/perf_monitor",
    "tensorboard_dir": "tensorboard",
}


def perform(config: Mapping[str, Any], open_runner: cluster.OpenRunner) -> int:
    """Does what `config["action"]` says, through `open_runner` if there are several machines. Returns the
    exit status. Raises PerfError for a mistake in the configuration.
    """
    asked = read_asked(config, os.getcwd())
    if asked.action == "stop" and asked.hostfile is None:
        _say(stop_job(asked.paths))
        return 0
    job = read_job(config, os.getcwd())
    if job.hostfile is not None:
        return cluster.dispatch(make_plan(job, os.environ), open_runner)
    return _ACTIONS[job.action](job)


def _run(job: Job) -> int:
    plan = _prepare(job)
    if not job.background:
        return _run_to_the_end(plan)[0]
    process = start_job(plan.job.paths, _say)
    _say(
        f"started (pid {process.pid}); do not start the script by hand as well",
        f"output: {plan.job.paths.output}",
        *_how_to_go_on(plan),
    )
    return 0


def _run_to_the_end(plan: Plan) -> tuple[int, Follower]:
    earlier = sessions(plan.perf.perf_log_dir)
    progress = Progress(f"starting {os.path.basename(plan.entrypoint)}")
    follower = Follower(plan.job.paths.output, plan.perf.perf_log_dir, sys.stdout, progress)
    kills = Machine().kills()
    process = start_job(plan.job.paths, _say)
    left_it = [f"left it running (pid {process.pid}); output: {plan.job.paths.output}", *_how_to_go_on(plan)]
    try:
        _say(f"started (pid {process.pid}); output: {plan.job.paths.output}")
        code = follower.wait(process)
    except KeyboardInterrupt:
        _say("", *left_it)
        return 130, follower
    except BrokenPipeError:  # as behind `| head`
        if process.poll() is None:
            with contextlib.suppress(OSError):
                print("the reader of this output has gone:", *left_it, sep="\n", file=sys.stderr)
        raise
    new = by_age(Path(plan.perf.perf_log_dir), sessions(plan.perf.perf_log_dir) - earlier)
    for line in _end(plan, code, kills, new):
        _say(line)
    return code, follower


def _end(plan: Plan, code: int, kills: Kills, new: list[str]) -> Iterator[str]:
    """Lines about a job that has ended; `new` are the monitor's sessions of it. The last ones say what went
    wrong, or else what was found.
    """
    stopped, last = was_stopped(plan.job.paths), reason(plan.job.paths.output)
    failed = code != 0 and not stopped
    status = f"the job {'was stopped by the user' if stopped else 'ended'} with exit status {code}"
    if failed:
        yield from ("", f"last lines of {plan.job.paths.output}:", *last)
    if new and sys.stdout.isatty():
        yield from ("", *log_rows(plan.perf.perf_log_dir, new[-1], shutil.get_terminal_size().columns))
    if not failed:
        yield status
    if new:
        yield from ("", *summary(plan, new[-1]))
    if failed:
        yield from (*explain(code, last, kills, Machine().kills()), status)


def _dryrun(job: Job) -> int:
    plan = _prepare(job, starts=False)
    _say(
        "command:",
        shlex.join(plan.command),
        "",
        f"nothing was started; to start it by hand: bash {shlex.quote(plan.job.paths.script)}",
    )
    return 0


def _test(job: Job) -> int:
    """A short trial in `<exp_dir>/test`: starts, trains two iterations, logs."""
    plan = _prepare(_trial_of(job))
    code, follower = _run_to_the_end(plan)
    seen = follower.progress.rows if plan.perf.enable_perf_monitor else follower.progress.iteration
    if code == 0 and not seen:
        where = (
            os.path.join(plan.perf.perf_log_dir, REALTIME_FILE)
            if plan.perf.enable_perf_monitor
            else plan.job.paths.output
        )
        _say(f"test failed: the job ended well, but {where} has no line about an iteration")
        return 1
    _say("test failed" if code else "test passed")
    return code


def _trial_of(job: Job) -> Job:
    paths = ExperimentPaths.of(os.path.join(job.paths.exp_dir, "test"), None, job.paths.cwd)
    kept = {key: setting for key, setting in job.settings.items() if key not in _TRIAL}
    changed = {key: Setting(f"train.system.{key}", value) for key, value in _TRIAL.items()}
    return replace(job, paths=paths, settings=kept | changed)


def _query(job: Job) -> int:
    paths = job.paths
    realtime = os.path.join(perf_options(job, os.environ).perf_log_dir, REALTIME_FILE)
    _say(f"{paths.exp_dir}: {_state(paths)}")
    code = exit_code(paths)
    if code and not was_stopped(paths):
        _say(*explain(code, reason(paths.output), None, Machine().kills()))
    lines = last_lines(paths.output, 1000)
    iterations = [found for line in lines if (found := iteration_of(line))]
    if iterations:
        _say("iteration {}/{}".format(*iterations[-1]))
    start = started_at(paths)
    rows = [line for line in last_lines(realtime, 100) if is_row(line, start)]
    _say(*(rows or lines)[-1:])
    return 0


def _state(paths: ExperimentPaths) -> str:
    job, code, start = running_job(paths), exit_code(paths), started_at(paths)
    if job is not None:
        return f"running (pid {job.pid})"
    if was_stopped(paths):
        return "stopped by the user" + ("" if code is None else f", exit status {code}")
    if code is not None:
        return f"finished, exit status {code}"
    if (there := job_elsewhere(paths)) is not None:
        return str(there)
    return "never started" if start is None else "ended without an exit status (killed)"


def _prepare(job: Job, starts: bool = True) -> Plan:
    """Checks the job and writes its script. What could not work here is refused only if it `starts` here."""
    plan = make_plan(job, os.environ)
    refuse_if_running(plan.job.paths, _say)  # before its script is replaced
    try:
        notes = check(plan)
    except PerfError as error:
        if starts:
            raise
        notes = [f"action=run would refuse this job here: {error}"]
    _say(*plan.resolved, *notes, f"script: {write_script(plan)}")
    return plan


def _how_to_go_on(plan: Plan) -> list[str]:
    command = f"{shlex.quote(sys.argv[0])} {shlex.quote(f'experiment.exp_dir={plan.job.paths.exp_dir}')}"
    return [f"stop it:    python {command} action=stop", f"look at it: python {command} action=query"]


def _say(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)


_ACTIONS: dict[str, Callable[[Job], int]] = {"run": _run, "dryrun": _dryrun, "test": _test, "query": _query}
