"""Shows how a job ended: the log's last rows, findings, the next command, and why it failed.

torchrun names the rank that failed first (`failed (exitcode: -9) local_rank: 3 (pid: 77)`) and itself ends
with 1. A negative exit code is the signal that ended the rank.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence

from flagscale_perf.launcher.follow import is_heading, is_row_or_remark, last_lines
from flagscale_perf.launcher.machine import Kills
from flagscale_perf.launcher.plan import Plan
from flagscale_perf.spine.session import file_names, page_name, session_of

_LOG_LINES = 15
_OUTPUT_LINES = 30
_REPORT_TIMEOUT_S = 60
FAILED = re.compile(r"failed \(exitcode: (-?\d+)\)(?: local_rank: (\d+))?(?: \(pid: (\d+)\))?")
_SIGNALS: dict[int, str] = {
    signal.SIGTERM: "it was asked to end: by a scheduler at its time limit, or by kill",
    signal.SIGINT: "it was interrupted, as by Ctrl-C",
    signal.SIGHUP: "the terminal it belonged to was closed",
    signal.SIGSEGV: "native code touched memory that is not its own: a library, a kernel or a driver that"
    " does not fit the others",
    signal.SIGABRT: "native code gave up; it says above why, for example that a collective timed out",
    signal.SIGBUS: "memory behind a file was not there; often /dev/shm is full: give it more room"
    " (docker run --shm-size), or use fewer data loader workers (num_workers)",
    signal.SIGILL: "a library was compiled for another type of CPU",
    signal.SIGFPE: "native code divided by zero",
}
_STATUSES = {
    2: "a command line was refused: the usage error above names the argument",
    126: "bash could not run the command: see experiment.task.python and experiment.cmds.before_start",
    127: "bash did not find the command: see experiment.task.python and experiment.cmds.before_start",
}
_MEMORY_IS_OUT = (
    "make the job smaller: fewer ranks on this machine, a smaller micro batch, fewer layers, or recomputation"
    " (recompute_granularity=full)"
)


def sessions(perf_log_dir: str) -> set[str]:
    """Ids of the monitor's sessions in the directory, now."""
    try:
        names = os.listdir(perf_log_dir)
    except OSError:
        return set()
    return {session for name in names if (session := session_of(name)) is not None}


def reason(output: str) -> list[str]:
    """The last lines of a failed job's output, up to where torchrun begins to speak of itself; of a job that
    torchrun has restarted, those of the last start.
    """
    lines = last_lines(output, 1000)
    ends = [index + 1 for index, line in enumerate(lines) if FAILED.search(line)]
    begin, end = ([0, *ends] if ends else [0, len(lines)])[-2:]
    return lines[begin:end][-_OUTPUT_LINES:]


def log_rows(perf_log_dir: str, session: str, width: int) -> list[str]:
    """The last rows and remarks of a session's log under their heading, each at most `width` characters."""
    path = os.path.join(perf_log_dir, file_names(session)["metrics"])
    end = last_lines(path, 1000)
    heading = [line for line in end if is_heading(line)][-1:]
    rows = [line for line in end if is_row_or_remark(line)][-_LOG_LINES:]
    return [line[:width] for line in heading + rows]


def summary(plan: Plan, session: str) -> list[str]:
    """Lines on a session: its findings, where its time went, its page, and the next command."""
    directory = plan.perf.perf_log_dir
    page = plan.job.paths.shown(os.path.join(directory, page_name(session)))
    command = [sys.executable, "-m", "flagscale_perf", "report", plan.job.paths.shown(directory)]
    command += ["--session", session, "--page", page]
    search = os.pathsep.join([*plan.pythonpath, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_REPORT_TIMEOUT_S,
            check=False,
            cwd=plan.job.paths.cwd,
            env={**os.environ, "PYTHONPATH": search},
        )
    except subprocess.TimeoutExpired:
        return [f"no summary: `flagscale-perf report` took longer than {_REPORT_TIMEOUT_S} s"]
    lines = done.stdout.rstrip().splitlines()
    if done.returncode != 0:
        complaint = (done.stderr.strip().splitlines() or ["no message"])[-1]
        what = "page" if lines else "summary"
        lines.append(f"no {what}: `flagscale-perf report` ended with {done.returncode}: {complaint}")
    return lines


def explain(status: int, output: Sequence[str], before: Kills | None, after: Kills) -> list[str]:
    """What ended the job with this exit status, as far as that can be known: one line or none.

    Args:
        status: of the job; not 0.
        output: its last lines, up to where torchrun names the rank that failed.
        before: the kernel's counters at its start; None if they were not read.
        after: the same at its end.
    """
    found = next((found for line in reversed(output) if (found := FAILED.search(line))), None)
    if found is not None:
        code, who = int(found[1]), f"local rank {found[2] or 0}" + (f" (pid {found[3]})" if found[3] else "")
    else:
        code, who = (128 - status if status > 128 else status), "torchrun"
    if code == -signal.SIGKILL:
        return [f"{who} was ended by signal 9 (SIGKILL): {_kill_reason(before, after)}"]
    if code < 0:
        why = _SIGNALS.get(-code, "who sent it is not known")
        return [f"{who} was ended by {_signal_name(-code)}: {why}"]
    return [f"{who} ended with exit status {code}: {_STATUSES[code]}"] if code in _STATUSES else []


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _kill_reason(before: Kills | None, after: Kills) -> str:
    """The reason for SIGKILL, by the kernel's counters of processes killed for want of memory."""
    before = before or Kills(None, None)
    in_group, on_machine = _more(before.group, after.group), _more(before.machine, after.machine)
    count = in_group or on_machine
    processes = "1 process" if count == 1 else f"{count} processes"
    if in_group:
        return f"out of memory: the kernel killed {processes} of this control group for it; {_MEMORY_IS_OUT}"
    if on_machine:
        return (
            f"out of memory: the kernel killed {processes} of this machine for it while the job"
            f" ran (oom_kill in /proc/vmstat: {before.machine} -> {after.machine}); {_MEMORY_IS_OUT}"
        )
    if in_group is None and on_machine is None:
        return (
            "the kernel does that when memory is out, and so does `kill -9`; its counters for the time of the"
            f" job are not readable here, `dmesg` may know; if it was memory, {_MEMORY_IS_OUT}"
        )
    return (
        "the kernel counted no process killed for want of memory while the job ran, so it was sent by"
        " a scheduler, or `kill -9`"
    )


def _more(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before
