"""Several machines: FlagScale's own runner starts the job, with a script that goes through our launch.

FlagScale's runner builds its scripts without safe quoting, so values that it would execute or mangle are
refused first.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from flagscale_perf.launcher import entrypoint
from flagscale_perf.launcher.config import PERF_KEYS
from flagscale_perf.launcher.flagscale_root import HOW_TO_INSTALL
from flagscale_perf.launcher.plan import OUTPUT_KEYS, Plan
from flagscale_perf.spine.errors import PerfError

_SAFE = re.compile(r"[A-Za-z0-9._/=:,@%+-]*")
_EXECUTED = re.compile("[\"'`$\\\\\n]")  # inside the double quotes that FlagScale puts around the command
_HOST_LINE = re.compile(r"(\S+)\s+slots=\d+(?:\s+type=(\S+))?")  # what FlagScale takes from a line
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:@%-]*")  # no option of ssh, and part of a file's name
_CHECKPOINT_KEYS, _LOGGING_KEYS = ("save", "load"), ("tensorboard_dir", "wandb_save_dir")

# (FlagScale's root, configuration in FlagScale's form) -> its runner; passed in, as no host is imported here.
OpenRunner = Callable[[str, dict[str, Any]], Any]


def dispatch(plan: Plan, open_runner: OpenRunner) -> int:
    """Does the job's action by FlagScale's runner. Returns 0. Raises PerfError for what it would harm."""
    hostfile = os.path.join(plan.job.paths.cwd, plan.job.hostfile or "")
    if not os.path.isfile(hostfile):
        raise PerfError(
            f"experiment.runner.hostfile: no file {hostfile!r}; write one line `HOST slots=N` for each"
            " machine"
        )
    if plan.root is None:
        raise PerfError(
            "experiment.runner.hostfile: several machines need FlagScale, which is not installed;"
            f" {HOW_TO_INSTALL}"
        )
    _refuse_unsafe(plan)
    _refuse_incomplete(plan)
    _refuse_unsafe_hosts(hostfile)
    try:
        _perform(open_runner(plan.root, flagscale_config(plan, hostfile)), plan)
    except (subprocess.CalledProcessError, ValueError) as error:  # FlagScale's, for what fails
        raise PerfError(
            f"action={plan.job.action}: FlagScale's runner failed: {error}; its own messages stand above"
        ) from None
    return 0


def _perform(runner: Any, plan: Plan) -> None:
    action = plan.job.action
    if action == "stop":
        _refuse_foreign_stop(runner, plan)
        runner.stop()
    elif action == "query":
        print(runner.query_once().name)
    else:
        runner.run(dryrun=action == "dryrun", with_test=action == "test")


def flagscale_config(plan: Plan, hostfile: str) -> dict[str, Any]:
    """The configuration that FlagScale's runner turns into the arguments that a job on one machine gets."""
    flags = {key: setting.value for key, setting in plan.settings.items() if setting.value is not None}
    for key in PERF_KEYS:
        if key in flags:
            value = getattr(plan.perf, key)
            flags |= {key: None, f"no_{key}": True} if value is False else {key: value}
    nested = {
        "checkpoint": {key: flags.pop(key) for key in _CHECKPOINT_KEYS if key in flags},
        "logging": {
            "log_dir": plan.job.paths.log_dir,
            **{key: flags.pop(key) for key in _LOGGING_KEYS if key in flags},
        },
    }
    return {
        "experiment": {
            "exp_dir": plan.job.paths.exp_dir,
            "envs": _known(plan.job.env) | {entrypoint.SCRIPT_VARIABLE: plan.entrypoint},
            "cmds": {"before_start": plan.job.before_start} if plan.job.before_start else {},
            "runner": _known(plan.job.runner) | {"hostfile": hostfile},
            "task": {
                "type": "train",
                "backend": "megatron",
                "entrypoint": os.path.abspath(entrypoint.__file__),
            },
        },
        "train": {"system": _known(flags) | nested, "model": {}, "data": {}},
        "action": plan.job.action,
    }


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _refuse_unsafe(plan: Plan) -> None:
    strict = {
        "experiment.exp_dir": plan.job.paths.exp_dir,
        "train.system.logging.log_dir": plan.job.paths.log_dir,
        **{f"experiment.envs.{name}": value for name, value in _known(plan.job.env).items()},
        **{f"experiment.runner.{key}": str(value) for key, value in plan.job.runner.items()},
        "experiment.task.entrypoint": plan.entrypoint,
        "this package's directory": os.path.abspath(entrypoint.__file__),
    }
    for key, setting in plan.settings.items():
        is_strict = key in PERF_KEYS or key in OUTPUT_KEYS
        for text in setting.texts:
            if is_strict:
                strict[setting.path] = text
            elif _EXECUTED.search(text):
                raise PerfError(
                    f"{setting.path}: FlagScale's runner would harm {text!r}; leave out quotes, backticks,"
                    " $, \\ and newlines"
                )
    for path, text in strict.items():
        if not _SAFE.fullmatch(text):
            raise PerfError(
                f"{path}: FlagScale's runner would harm {text!r}; use only letters, digits and ._/=:,@%+-"
            )


def _refuse_incomplete(plan: Plan) -> None:
    """FlagScale's runner takes for granted what a job on one machine may leave out."""
    if "save_interval" not in plan.settings or plan.settings["save_interval"].value is None:
        raise PerfError(
            "train.system.save_interval: FlagScale's runner always saves checkpoints; add"
            " train.system.checkpoint.save_interval=N"
        )
    if not any(name.endswith("_VISIBLE_DEVICES") for name in plan.job.env):
        raise PerfError(
            "experiment.envs: FlagScale's runner needs the devices of a machine; add for example"
            " CUDA_VISIBLE_DEVICES=0,1,2,3"
        )


def _refuse_unsafe_hosts(hostfile: str) -> None:
    """FlagScale puts host names into commands for ssh and into the script's arguments."""
    try:
        with open(hostfile, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file]
    except OSError as error:
        raise PerfError(
            f"experiment.runner.hostfile: cannot read {hostfile!r}: {error.strerror}; give a file that can"
            " be read"
        ) from None
    for number, line in enumerate(lines, 1):
        found = None if line.startswith("#") else _HOST_LINE.match(line)
        for name in found.groups("host") if found else ():
            if not _HOST.fullmatch(name):
                raise PerfError(
                    f"experiment.runner.hostfile: line {number} of {hostfile!r}: FlagScale's runner would"
                    f" harm {name!r}; use only letters, digits and ._:@%-"
                )


def _refuse_foreign_stop(runner: Any, plan: Plan) -> None:
    """Raises PerfError without a pid file, as FlagScale's script would end every torchrun of the machine."""
    for rank, host in enumerate(runner.resources or {}):
        path = os.path.join(plan.job.paths.log_dir, "pids", f"host_{rank}_{host}.pid")
        if not os.path.isfile(path):
            raise PerfError(
                f"action=stop: {path!r} is not there, and without it FlagScale would stop every torchrun of"
                f" {host}; stop it there by hand"
            )
