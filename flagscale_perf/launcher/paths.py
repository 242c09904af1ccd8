"""The files of one experiment on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass

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
    def of(cls, exp_dir: str, log_dir: str | None, cwd: str) -> ExperimentPaths:
        """The files of these directories, as a command that was typed in `cwd` names them."""
        root = os.path.normpath(os.path.join(cwd, exp_dir))
        if log_dir is None:
            return cls(root, os.path.join(root, "logs"), cwd)
        return cls(root, cls(root, "", cwd).resolve(log_dir), cwd)

    @property
    def script(self) -> str:
        """The bash script that starts the job."""
        return os.path.join(self.log_dir, "scripts", f"{_HOST}_run.sh")

    @property
    def output(self) -> str:
        """The file with what the last job wrote to stdout and stderr."""
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
    def stop_file(self) -> str:
        """Left by `action=stop` before its signal: the end of the job was the user's wish."""
        return os.path.join(self.log_dir, "pids", f"{_HOST}.stop")

    @property
    def lock_file(self) -> str:
        """Held while a job is being started."""
        return os.path.join(self.log_dir, "pids", f"{_HOST}.lock")

    def resolve(self, path: str) -> str:
        """An output path made absolute against the experiment directory.

        A relative path that names the experiment directory itself (`./outputs/logs` with exp_dir `./outputs`)
        is taken as typed: `outputs/outputs/logs` is never what was meant.
        """
        typed = os.path.normpath(os.path.join(self.cwd, path))
        if os.path.isabs(path) or (_inside(typed, self.exp_dir) and not _inside(self.cwd, self.exp_dir)):
            return typed
        return os.path.normpath(os.path.join(self.exp_dir, path))

    def shown(self, path: str) -> str:
        """An absolute path as it is written where the command was typed: relative, if it is below."""
        return os.path.relpath(path, self.cwd) if _inside(path, self.cwd) else path

    def make(self) -> None:
        """Creates the directories the launcher writes to. Raises PerfError where that cannot be done."""
        for directory in (os.path.dirname(self.script), os.path.dirname(self.pid_file)):
            try:
                os.makedirs(directory, exist_ok=True)
            except OSError as error:
                raise PerfError(
                    f"experiment.exp_dir: cannot create {directory!r}: {error.strerror}; give a directory"
                    " that can be written"
                ) from None


def _inside(path: str, directory: str) -> bool:
    return os.path.commonpath([path, directory]) == directory
