"""What is said of a job that failed, by its exit status, its output and the kernel's counters."""

import pytest

from flagscale_perf.launcher.ended import explain
from flagscale_perf.launcher.machine import Kills

SAME = Kills(group=0, machine=3)
UNREADABLE = Kills(None, None)
SMALLER = (
    "make the job smaller: fewer ranks on this machine, a smaller micro batch, fewer layers, or recomputation"
    " (recompute_granularity=full)"
)
TERMINATED = (
    "was ended by signal 15 (SIGTERM): it was asked to end: by a scheduler at its time limit, or by kill"
)


def line(code: int) -> str:
    return f"E1122 api.py:1002] failed (exitcode: {code}) local_rank: 3 (pid: 77) of binary: /usr/bin/python"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (
            SAME,
            Kills(2, 5),
            f"out of memory: the kernel killed 2 processes of this control group for it; {SMALLER}",
        ),
        (
            SAME,
            Kills(0, 4),
            "out of memory: the kernel killed 1 process of this machine for it while the job ran (oom_kill in"
            f" /proc/vmstat: 3 -> 4); {SMALLER}",
        ),
        (
            SAME,
            SAME,
            "the kernel counted no process killed for want of memory while the job ran, so it was sent by"
            " a scheduler, or `kill -9`",
        ),
        (
            UNREADABLE,
            UNREADABLE,
            "the kernel does that when memory is out, and so does `kill -9`; its counters for the time of the"
            f" job are not readable here, `dmesg` may know; if it was memory, {SMALLER}",
        ),
        (
            None,
            SAME,
            "the kernel does that when memory is out, and so does `kill -9`; its counters for the time of the"
            f" job are not readable here, `dmesg` may know; if it was memory, {SMALLER}",
        ),
        (
            Kills(None, 3),
            Kills(None, 3),
            "the kernel counted no process killed for want of memory while the job ran, so it was sent by"
            " a scheduler, or `kill -9`",
        ),
    ],
)
def test_a_rank_that_was_killed(before, after, why) -> None:
    said = explain(1, ["something", line(-9)], before, after)
    assert said == [f"local rank 3 (pid 77) was ended by signal 9 (SIGKILL): {why}"]


@pytest.mark.parametrize(
    ("status", "output", "said"),
    [
        (1, [line(-15)], f"local rank 3 (pid 77) {TERMINATED}"),
        (
            1,
            [line(-7)],
            "local rank 3 (pid 77) was ended by signal 7 (SIGBUS): memory behind a file was not"
            " there; often /dev/shm is full: give it more room (docker run --shm-size), or use"
            " fewer data loader workers (num_workers)",
        ),
        (1, [line(-10)], "local rank 3 (pid 77) was ended by signal 10 (SIGUSR1): who sent it is not known"),
        (1, [line(-40)], "local rank 3 (pid 77) was ended by signal 40: who sent it is not known"),
        (143, [], f"torchrun {TERMINATED}"),
        (-15, [], f"torchrun {TERMINATED}"),
        (
            1,
            [line(2)],
            "local rank 3 (pid 77) ended with exit status 2: a command line was refused: the usage"
            " error above names the argument",
        ),
        (
            127,
            ["bash: no-python: command not found"],
            "torchrun ended with exit status 127: bash did not find"
            " the command: see experiment.task.python and experiment.cmds.before_start",
        ),
    ],
)
def test_other_ends(status, output, said) -> None:
    assert explain(status, output, SAME, SAME) == [said]


def test_an_exception_is_explained_by_its_own_traceback() -> None:
    assert explain(1, [line(1)], SAME, SAME) == explain(1, [], SAME, SAME) == []


def test_the_last_rank_that_is_named_counts() -> None:
    assert explain(1, [line(-9), "restarted", line(1)], SAME, Kills(1, 4)) == []
