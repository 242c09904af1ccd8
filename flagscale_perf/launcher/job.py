"""One job: its script, its start in a session and with an output file of its own, its pid file, its end.

The pid file holds the process id and its start time by the kernel, so that a process id used again is never
mistaken for the job; and the machine, its boot and its namespace of process ids, outside of which the process
cannot be looked up: of a job started there, the exit status and the growth of its files are the evidence.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from flagscale_perf.launcher.paths import ExperimentPaths
from flagscale_perf.launcher.plan import Plan
from flagscale_perf.spine import files, stop_note
from flagscale_perf.spine.clock import boot_id
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.processes import ProcessStat, process_stat

# torchrun kills its workers 30 s after SIGTERM; what is still there later does not react any more.
STOP_WAIT_S = 40.0
_POLL_S = 0.1
# Files of a job elsewhere that grew so recently are watched until they are that old: a live job writes again.
GROWTH_S = 60.0
# Waits for the script and notes its exit status, even if the whole group gets a signal that ends a job, or
# one by which a scheduler tells all of it something. `trap :` and not `trap ''`: an ignored signal would be
# ignored by the script, too.
_TRAP = "trap : TERM INT HUP QUIT USR1 USR2 ALRM VTALRM PROF XCPU IO PWR STKFLT"
_WRAPPER = _TRAP + '; bash "$1"; code=$?; printf "%s\\n" "$code" >"$2"; exit "$code"'


@dataclass(frozen=True)
class ProcessId:
    """Identifies a process for ever: its id and its start in clock ticks since boot."""

    pid: int
    start_ticks: int


@dataclass(frozen=True)
class Elsewhere:
    """A job without an exit status that was started where its process cannot be looked up from here.

    Attributes:
        host: name of that machine, which may also be this one's: before a boot, or in another container.
        pid: there.
        grew_s: seconds since one of its files last grew; None if there is none.
    """

    host: str
    pid: int
    grew_s: float | None

    def __str__(self) -> str:
        grew = "it has no files" if self.grew_s is None else f"its files last grew {self.grew_s:.0f} s ago"
        return f"the job that was started on {self.host} (pid {self.pid}) may still run: {grew}"


def running_job(paths: ExperimentPaths) -> ProcessId | None:
    """The job of this experiment if it lives here: same process id and start, leader of its own session."""
    process, _, place = _pid_file(paths)
    state = None if process is None or place not in (None, _place()) else _stat_of(process.pid)
    if process is None or state is None:
        return None
    return process if (state.start_ticks, state.session) == (process.start_ticks, process.pid) else None


def job_elsewhere(paths: ExperimentPaths) -> Elsewhere | None:
    """The job of this experiment if only its files can tell whether it lives."""
    process, host, place = _pid_file(paths)
    if process is None or place in (None, _place()) or exit_code(paths) is not None:
        return None
    grown = _last_growth(paths)
    return Elsewhere(host, process.pid, None if grown is None else max(0.0, time.time() - grown))


def _pid_file(paths: ExperimentPaths) -> tuple[ProcessId | None, str, str | None]:
    """Process, machine and `_place` of the last job."""
    try:
        with open(paths.pid_file, encoding="utf-8") as file:
            pid, start_ticks, *where = file.read(1024).split()
        host, place = where or ("", None)
        return ProcessId(int(pid), int(start_ticks)), host, place
    except (OSError, ValueError):
        return None, "", None


def _place() -> str:
    """Identifies where a process id of this process's is valid: one boot, one namespace of process ids."""
    namespace = 0
    with contextlib.suppress(OSError):
        namespace = os.stat("/proc/self/ns/pid").st_ino
    return f"{boot_id()}/{namespace}".replace(" ", "-")


def _last_growth(paths: ExperimentPaths) -> float | None:
    """When a job last wrote into its log directory, Unix seconds; what run.py writes there is left out."""
    own = {os.path.dirname(paths.script), os.path.dirname(paths.pid_file)}
    newest: list[float] = []
    for directory, _, names in os.walk(paths.log_dir):
        if directory not in own:
            for name in names:
                with contextlib.suppress(OSError):
                    newest.append(os.stat(os.path.join(directory, name)).st_mtime)
    return max(newest, default=None)


def exit_code(paths: ExperimentPaths) -> int | None:
    """Exit status of the last job; None while it runs, before the first, and if it was killed without one."""
    try:
        with open(paths.exit_file, encoding="ascii") as file:
            return int(file.read(16))
    except (OSError, ValueError):
        return None


def started_at(paths: ExperimentPaths) -> datetime | None:
    """When the last job was started, local time; None before the first."""
    try:
        return datetime.fromtimestamp(os.stat(paths.pid_file).st_mtime)
    except OSError:
        return None


def was_stopped(paths: ExperimentPaths) -> bool:
    """Whether `action=stop` has ended the last job, or is just doing so."""
    return os.path.exists(paths.stop_file)


def refuse_if_running(paths: ExperimentPaths, say: Callable[[str], object] = lambda line: None) -> None:
    """Raises PerfError while a job of this experiment runs. Of one that was started elsewhere, `say` gets
    what cannot be known; where its files grew a moment ago, this waits until they grow again or do not.
    """
    job = running_job(paths)
    if job is not None:
        raise PerfError(
            f"experiment.exp_dir: a job of {paths.exp_dir} is running already (pid {job.pid}); stop it with"
            " action=stop, look at it with"
            " action=query, or give another experiment.exp_dir"
        )
    there = job_elsewhere(paths)
    if there is None:
        return
    say(f"{paths.exp_dir}: {there}")
    grown = _last_growth(paths)
    while there is not None and there.grew_s is not None and there.grew_s < GROWTH_S:
        if grown != _last_growth(paths):
            raise PerfError(
                f"experiment.exp_dir: a job of {paths.exp_dir} is running on {there.host} (pid {there.pid}):"
                " its files grow; stop it there, or give another experiment.exp_dir"
            )
        time.sleep(_POLL_S)
        there = job_elsewhere(paths)


def start_job(
    paths: ExperimentPaths, say: Callable[[str], object] = lambda line: None
) -> subprocess.Popen[bytes]:
    """Starts the script once, in a session of its own, with a new output file; `say` gets what is not
    guarded against.

    Raises PerfError while a job of this experiment runs, and where its files cannot be written.
    """
    try:
        return _start(paths, say)
    except OSError as error:
        raise PerfError(
            f"experiment.exp_dir: cannot start a job of {paths.exp_dir}: {error}; give a directory that can"
            " be written"
        ) from None


def _start(paths: ExperimentPaths, say: Callable[[str], object]) -> subprocess.Popen[bytes]:
    with _lock(paths, say):
        refuse_if_running(paths)
        for stale in (paths.pid_file, paths.exit_file, paths.stop_file):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(stale)
        _put_aside(paths.output)
        with open(paths.output, "ab") as output:
            process = subprocess.Popen(
                ["bash", "-c", _WRAPPER, "run.py", paths.script, paths.exit_file],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, stop_note.VARIABLE: paths.stop_file},
            )
        try:
            state = _stat_of(process.pid)
            ticks = state.start_ticks if state else 0  # 0: it has ended already
            with open(paths.pid_file, "w", encoding="utf-8") as file:
                file.write(f"{process.pid} {ticks} {os.uname().nodename or '?'} {_place()}\n")
        except OSError:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    return process


def _put_aside(output: str) -> None:
    """Gives what the job before has written a name of its own, with the time of its last line."""
    path = os.path.realpath(output)  # of a link the file behind it: the link stays where the user put it
    if not os.path.isfile(path) or os.path.getsize(path) == 0:
        return
    aside = base = f"{path}.{datetime.fromtimestamp(os.stat(path).st_mtime):%Y%m%d_%H%M%S}"
    number = 1
    while os.path.lexists(aside):
        number += 1
        aside = f"{base}_{number}"
    os.rename(path, aside)


@contextlib.contextmanager
def _lock(paths: ExperimentPaths, say: Callable[[str], object]) -> Iterator[None]:
    paths.make()
    with open(paths.lock_file, "w", encoding="ascii") as file:
        try:
            is_held = files.lock(file.fileno())
        except BlockingIOError:
            raise PerfError(
                f"experiment.exp_dir: another command is just starting a job of {paths.exp_dir}; try again"
            ) from None
        if not is_held:
            say(f"{paths.exp_dir} is on a file system without locks: two starts at once are not prevented")
        yield


def stop_job(paths: ExperimentPaths, wait_s: float = STOP_WAIT_S) -> str:
    """Ends the job: SIGTERM to its process group, and SIGKILL to it and its workers after `wait_s` seconds.

    Returns what was done, in a sentence. Raises PerfError if the job belongs to another user, or was started
    elsewhere and may still run.
    """
    job = running_job(paths)
    if job is None and (there := job_elsewhere(paths)) is not None:
        raise PerfError(
            f"action=stop: {there}, which cannot be looked up or stopped from here; stop it there"
        )
    if job is None:
        return f"nothing running in {paths.exp_dir}"
    try:
        _signal(paths, job)
    except ProcessLookupError:
        return f"nothing running in {paths.exp_dir}"
    except PermissionError:
        raise PerfError(
            f"action=stop: the job of {paths.exp_dir} (pid {job.pid}) belongs to another user; let that user"
            " stop it"
        ) from None
    deadline = time.monotonic() + wait_s
    workers = _workers(job)
    while _is_alive(job):
        if time.monotonic() > deadline:
            _kill(job, workers + _workers(job))
            why = f"it did not end within {wait_s:g} s of SIGTERM"
            return f"killed the job of {paths.exp_dir} (pid {job.pid}): {why}"
        time.sleep(_POLL_S)
    return f"stopped the job of {paths.exp_dir} (pid {job.pid})"


def _signal(paths: ExperimentPaths, job: ProcessId) -> None:
    """The note first: the monitor's writer looks for it when the training has ended."""
    with contextlib.suppress(OSError):  # without room for the note the job is stopped all the same
        stop_note.leave(paths.stop_file)
    try:
        os.killpg(job.pid, signal.SIGTERM)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(paths.stop_file)
        raise


def _is_alive(process: ProcessId) -> bool:
    state = _stat_of(process.pid)
    return state is not None and state.start_ticks == process.start_ticks


def _stat_of(pid: int) -> ProcessStat | None:
    """None also where the system does not say."""
    with contextlib.suppress(OSError, ValueError):
        return process_stat(pid)
    return None


def _workers(job: ProcessId) -> list[ProcessId]:
    """Training workers: torchrun gives each its own session, out of reach of signals to the job's group."""
    found = {int(name): _stat_of(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    alive = {pid: state for pid, state in found.items() if state is not None}
    inside = {pid for pid, state in alive.items() if state.session == job.pid}
    return [
        ProcessId(pid, state.start_ticks)
        for pid, state in alive.items()
        if state.parent in inside and state.session == pid != job.pid
    ]


def _kill(job: ProcessId, workers: list[ProcessId]) -> None:
    for process in (job, *workers):
        if _is_alive(process):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def render(plan: Plan) -> str:
    """The script's text. `experiment.cmds.before_start` is the user's own shell code and goes in as it is."""
    lines = [
        "#!/usr/bin/env bash",
        "# Written by run.py; written anew by every action=run, test and dryrun.",
        "set -eu",
        f"cd -- {shlex.quote(plan.job.paths.cwd)}",
    ]
    if plan.job.before_start:
        lines += [
            "set +u  # activation scripts of environments rarely stand `set -u`",
            plan.job.before_start,
            "set -eu",
        ]
    for name, value in plan.job.env.items():
        lines.append(f"unset -v {name}" if value is None else f"export {name}={shlex.quote(value)}")
    if plan.pythonpath:
        lines.append(
            "export"
            f" PYTHONPATH={shlex.quote(os.pathsep.join(plan.pythonpath))}${{PYTHONPATH:+:${{PYTHONPATH}}}}"
        )
    return "\n".join([*lines, f"exec -- {shlex.join(plan.command)}", ""])


def write_script(plan: Plan) -> str:
    """Replaces the script. Returns its path. Raises PerfError if bash cannot parse `before_start`."""
    plan.job.paths.make()
    path = plan.job.paths.script
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(render(plan))
        os.chmod(temporary, 0o750)
        checked = subprocess.run(
            ["bash", "-n", temporary], capture_output=True, text=True, errors="replace", check=False
        )
        if checked.returncode != 0:
            complaint = checked.stderr.strip()
            raise PerfError(
                f"experiment.cmds.before_start: {plan.job.before_start!r} is not whole bash code: "
                f"{complaint};"
                " mend its quotes"
            )
        os.replace(temporary, path)
    except OSError as error:
        raise PerfError(
            f"experiment.exp_dir: cannot write {path!r}: {error.strerror}; give a directory that can be"
            " written"
        ) from None
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)
    return path
