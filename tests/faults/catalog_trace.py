"""Faults of a traced job: real Ray actors with a real TransferQueue (`tests.trace.job`)."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.mounts import mounted
from tests.faults.page import LATER, NOTHING, REMOVED
from tests.members import wait_for, writer_of

# A job of `tests.trace.job`, which can be imported only where Ray is.
Job = Any
SMALL = "size=2M"
HOUR_S = 3600


@dataclass(frozen=True)
class TraceFault:
    """What is injected into a traced job, and what may be missing from its run file.

    Attributes:
        name: unique, short.
        injected: how, for the page.
        act: does it, while the actors work.
        actors: of the job.
        calls: of each actor, and of each of its forked workers.
        around: called with the directory of the traces; there from before the start until all is checked.
        loses: what may be missing.
        says: what must be among the lines of the processes, or the events of the run file.
        times: how often it is run, each time with another seed.
        short_calls: so many in `make test-trace`; 0 where it is no part of that.
    """

    name: str
    injected: str
    act: Callable[[Job, random.Random], None] = lambda job, chance: None
    actors: int = 3
    calls: int = 400
    around: Callable[[Path], AbstractContextManager[None]] = lambda directory: nullcontext()
    loses: str = NOTHING
    says: str = ""
    times: int = 1
    short_calls: int = 0


def kill_some(job: Job, chance: random.Random) -> None:
    """Half of the actors, one after another, each after some of its calls: by Ray and by the kernel."""
    chosen = chance.sample(range(len(job.actors)), len(job.actors) // 2)
    moments = sorted((chance.randrange(1, job.count * 3 // 4), number) for number in chosen)
    for turn, (done, number) in enumerate(moments):
        job.wait_until(number, done)
        (job.kill if turn % 2 else job.ray_kill)(number)


def fork(job: Job, chance: random.Random) -> None:
    """Two workers of a DataLoader, once the actors have done their own calls."""
    job.join()
    job.fork(0, 2)


def kill_writer(job: Job, chance: random.Random) -> None:
    """Three times, and each time there is another one."""
    killed = 0
    for _ in range(3):
        job.wait_until(0, min(job.tallies[job.pids[0]][1] + chance.randrange(1, job.count // 8), job.count))
        killed = writer_of(job.trace, but=killed)
        os.kill(killed, signal.SIGKILL)
    writer_of(job.trace, but=killed)


def stop_writer(job: Job, chance: random.Random) -> None:
    """Until all calls are done."""
    writer = writer_of(job.trace)
    os.kill(writer, signal.SIGSTOP)
    job.join()
    os.kill(writer, signal.SIGCONT)


def fill_disk(job: Job, chance: random.Random) -> None:
    """Nothing more fits in, once the run file has begun."""
    job.wait_until(0, job.count // 4)
    wait_for(lambda: any(path.stat().st_size for path in job.trace.glob("perf_records_*")))
    (job.trace / "ballast").write_bytes(bytes(shutil.disk_usage(job.trace).free))


def fill_disk_for_a_while(job: Job, chance: random.Random) -> None:
    """Until all calls are done."""
    fill_disk(job, chance)
    job.join()
    wait_for(lambda: any("No space left" in line for line in job.said))
    (job.trace / "ballast").unlink()


def remove_directory(job: Job, chance: random.Random) -> None:
    """rm -rf, in the middle."""
    job.wait_until(0, job.count // 2)
    shutil.rmtree(job.trace.rename(job.directory / "removed"))


@contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    """With room for some of it."""
    with mounted(directory, SMALL):
        yield


TRACE = (
    TraceFault("no fault, 8 actors", "nothing", actors=8, calls=1000, short_calls=200),
    TraceFault(
        "actors killed at random",
        "ray.kill and SIGKILL in turn, to half of 8 actors at random moments",
        kill_some,
        actors=8,
        calls=600,
        times=3,
    ),
    TraceFault(
        "forked workers",
        "a DataLoader of one actor forks two workers, which put and get",
        fork,
        actors=2,
        short_calls=200,
    ),
    TraceFault("trace writer killed", "SIGKILL to the writer of the job's traces, three times", kill_writer),
    TraceFault("trace writer stopped", "SIGSTOP to it, until all calls are done", stop_writer),
    TraceFault(
        "trace disk full for a while",
        "the directory is a file system that has no room from a quarter of the calls to the last one",
        fill_disk_for_a_while,
        around=small_disk,
        says="No space left on device",
    ),
    TraceFault(
        "trace disk full for good",
        "the same, and it never has room again",
        fill_disk,
        around=small_disk,
        loses=LATER,
        says="No space left on device",
    ),
    TraceFault("trace directory removed", "rm -rf after half of the calls", remove_directory, loses=REMOVED),
)
