"""The other ranks of `tests.faults.loop`: each stores its steps as a training's other ranks do, in step with
rank 0, and prints nothing.

    python -m tests.faults.ranks ITERATIONS LOG-DIRECTORY

`TROUBLE` in its environment: memory (no descriptor for the ring), user (another one), fork (a child that
lives on), hidden (not dumpable, so that a /proc with hidepid does not show it).
"""

from __future__ import annotations

import os
import resource
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

RANK = 1  # the only other one
NOBODY = 65534
ENDS = ONE_NODE, TWO_NODES = "ranks", "nodes"  # of the loop
# Rank 0's steps: time enough to find one another, and, of two nodes, to miss one that is gone.
STEP_S = {ONE_NODE: 0.01, TWO_NODES: 0.04}


def environment_of(rank: int, end: str, directory: Path) -> dict[str, str]:
    """As torchrun would set it; the job's directory tells it from others."""
    beside = end == ONE_NODE
    place = {
        "RANK": rank,
        "WORLD_SIZE": 2,
        "LOCAL_RANK": rank if beside else 0,
        "LOCAL_WORLD_SIZE": 2 if beside else 1,
        "GROUP_RANK": 0 if beside else rank,
    }
    return {name: str(value) for name, value in place.items()} | {"TORCHELASTIC_RUN_ID": str(directory)}


def become_rank_0(end: str) -> dict[str, int]:
    """This process, for its writer to see; returns the facts of it."""
    os.environ |= environment_of(0, end, Path.cwd())
    return {"world_size": 2, "data_parallel": 2, "tensor_parallel": 1}


@contextmanager
def beside(end: str, iterations: int, directory: str) -> Iterator[Callable[[], None]]:
    """Rank 0 trains in this block: the other rank has begun, and has ended after it. It does a step for each
    call of what the block is given.
    """
    environment = os.environ | environment_of(RANK, end, Path.cwd())
    command = [sys.executable, "-m", "tests.faults.ranks", str(iterations), directory]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None and other.stdout is not None
        assert other.stdout.readline() == b"begun\n"
        steps = other.stdin.fileno()

        def step() -> None:
            with suppress(BrokenPipeError):  # it was killed, as it should be
                os.write(steps, b".")

        yield step


def main() -> None:
    from flagscale_perf.training.ranks.logger import RankLogger
    from flagscale_perf.training.ranks.place import Place
    from tests.fakes import make_identity, make_step
    from tests.faults.namespace import hide_this_process

    iterations, directory = int(sys.argv[1]), sys.argv[2]
    trouble = os.environ.get("TROUBLE", "")
    if trouble == "user":
        os.setuid(NOBODY)
    if trouble == "hidden":
        hide_this_process()
    place = Place.of(os.environ)
    assert place is not None
    with _no_descriptors(trouble == "memory"):
        logger = RankLogger.start(place, make_identity(RANK, hostname="node1", pid=os.getpid()), directory)
    rank_0 = os.pidfd_open(os.getppid())
    if trouble == "fork" and os.fork() == 0:
        select.select([rank_0], [], [])  # until it is gone
        os._exit(0)
    print("begun", flush=True)
    for iteration in range(1, iterations + 1):
        if not os.read(sys.stdin.fileno(), 1):
            break  # rank 0 has ended before
        logger.step(make_step(iteration))
    logger.end("completed")
    for thread in threading.enumerate():
        if thread.name == "flagscale_perf collector":
            thread.join(2)  # it has written everything


@contextmanager
def _no_descriptors(holds: bool) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if holds:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


if __name__ == "__main__":
    main()
