"""Why a job failed, in a sentence: what the exit status of torchrun or of a rank means.

torchrun names the rank that failed first (`failed (exitcode: -9) local_rank: 3 (pid: 77)`) and itself ends
with 1. A negative exit code is the signal that ended the rank.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from flagscale_perf.launcher.machine import Kills

FAILED = re.compile(r"failed \(exitcode: (-?\d+)\)(?: local_rank: (\d+))?(?: \(pid: (\d+)\))?")
_SIGNALS = {
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


def explain(status: int, output: Sequence[str], before: Kills | None, after: Kills) -> list[str]:
    """At most one line: what ended the job with this exit status, as far as that can be known.

    Args:
        status: of the job; not 0.
        output: its last lines, up to where torchrun names the rank that failed.
        before: the kernel's counters at its start; None if nobody read them.
        after: the same at its end.
    """
    found = next((found for line in reversed(output) if (found := FAILED.search(line))), None)
    if found is not None:
        code, who = int(found[1]), f"local rank {found[2] or 0}" + (f" (pid {found[3]})" if found[3] else "")
    else:
        code, who = (128 - status if status > 128 else status), "torchrun"
    if code < 0:
        return [f"{who} was ended by {_signal_name(-code)}: {_reason(-code, before, after)}"]
    return [f"{who} ended with exit status {code}: {_STATUSES[code]}"] if code in _STATUSES else []


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _reason(number: int, before: Kills | None, after: Kills) -> str:
    if number == signal.SIGKILL:
        return _kill_reason(before, after)
    return _SIGNALS.get(signal.Signals(number), "") if number in _SIGNALS else "who sent it is not known"


def _kill_reason(before: Kills | None, after: Kills) -> str:
    """Of SIGKILL, by the kernel's counters of processes that it has killed for want of memory."""
    before = before or Kills(None, None)
    in_group, on_machine = _more(before.group, after.group), _more(before.machine, after.machine)
    if in_group:
        killed = f"the kernel killed {_processes(in_group)} of this control group for it"
        return f"out of memory: {killed}; {_MEMORY_IS_OUT}"
    if on_machine:
        return (
            f"out of memory: the kernel killed {_processes(on_machine)} of this machine for it while the job"
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


def _processes(number: int) -> str:
    return "1 process" if number == 1 else f"{number} processes"


def _more(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before
