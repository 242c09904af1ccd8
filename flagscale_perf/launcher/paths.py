"""Where the files of one experiment lie."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flagscale_perf.spine.errors import PerfError

_HOST = "host_0_localhost"


@dataclass(frozen=True)
class ExperimentPaths:
    """The files of an experiment on this machine, named as FlagScale names them.

    Attributes:
        exp_dir: absolute.
        log_dir: absolute; `<exp_dir>/logs` unless the configuration says otherwise.
        cwd: the directory the command was typed in, absolute.
    """

    exp_dir: str
    log_dir: str
    cwd: str

    @classmethod
    def from_config(cls, config: Mapping[str, Any], cwd: str) -> ExperimentPaths:
        """From the resolved configuration. Raises PerfError without a usable `experiment.exp_dir`."""
        given = section(config, "experiment").get("exp_dir")
        exp_dir = os.path.normpath(os.path.join(cwd, _directory(given, "experiment.exp_dir", "./outputs")))
        log_dir = section(config, "train.system.logging").get("log_dir")
        if log_dir is None:
            return cls(exp_dir, os.path.join(exp_dir, "logs"), cwd)
        log_dir = _directory(log_dir, "train.system.logging.log_dir", "null")
        return cls(exp_dir, cls(exp_dir, "", cwd).resolve(log_dir), cwd)

    @property
    def script(self) -> str:
        """The bash script that starts the job."""
        return os.path.join(self.log_dir, "scripts", f"{_HOST}_run.sh")

    @property
    def output(self) -> str:
        """What the job writes to stdout and stderr."""
        return os.path.join(self.log_dir, f"{_HOST}.output")

    @property
    def pid_file(self) -> str:
        """`PID STARTTIME` of the job's first process."""
        return os.path.join(self.log_dir, "pids", f"{_HOST}.pid")

    @property
    def exit_file(self) -> str:
        """The job's exit status, once it has one."""
        return os.path.join(self.log_dir, "pids", f"{_HOST}.exit")

    @property
    def lock_file(self) -> str:
        """Held while a job is being started."""
        return os.path.join(self.log_dir, "pids", f"{_HOST}.lock")

    def resolve(self, path: str) -> str:
        """An output path made absolute against the experiment directory.

        A relative path that names the experiment directory itself (`./outputs/logs` with exp_dir `./outputs`)
        is taken as typed: nobody who writes that means `outputs/outputs/logs`.
        """
        typed = os.path.normpath(os.path.join(self.cwd, path))
        if os.path.isabs(path) or (_inside(typed, self.exp_dir) and not _inside(self.cwd, self.exp_dir)):
            return typed
        return os.path.normpath(os.path.join(self.exp_dir, path))

    def make(self) -> None:
        """Creates the directories the launcher writes to. Raises PerfError where that cannot be done."""
        for directory in (os.path.dirname(self.script), os.path.dirname(self.pid_file)):
            try:
                os.makedirs(directory, exist_ok=True)
            except OSError as error:
                raise PerfError(
                    f"experiment.exp_dir: cannot create {directory!r}: {error.strerror}; give a directory that can be written"
                ) from None


def section(config: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The section at a dotted path; {} where it is absent or null. Raises PerfError where there is something
    else.
    """
    found: Any = config
    for name in path.split("."):
        found = found.get(name)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            raise PerfError(
                f"{path}: {name} is {found!r} and not a section of keys; see conf/train.yaml for the form"
            )
    result: Mapping[str, Any] = found
    return result


def _directory(value: Any, key: str, example: str) -> str:
    if (
        not isinstance(value, str)
        or not value.strip()
        or any(ord(char) < 32 or ord(char) == 127 for char in value)
    ):
        raise PerfError(f"{key}: {value!r} is not a directory name; write for example {key}={example}")
    return value


def _inside(path: str, directory: str) -> bool:
    return os.path.commonpath([path, directory]) == directory
