"""The other ranks of `tests.faults.loop`: each stores its steps as a training's other ranks do, and prints
nothing.

    python -m tests.faults.ranks ITERATIONS LOG-DIRECTORY

`TROUBLE` in its environment: memory (no descriptor for the ring), user (another one), fork (a child that
lives on), hidden (not dumpable, so that a /proc with hidepid does not show it).
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RANK = 1  # the only other one
STEP_S = 0.01  # rank 0's, too: time enough to find one another
NOBODY = 65534
ENDS = ONE_NODE, TWO_NODES = "ranks", "nodes"  # of the loop


def environment_of(rank: int, end: str, directory: Path) -> dict[str, str]:
    """As torchrun would set it; the job's directory tells it from others."""
    beside = end == ONE_NODE
    place = {
        "RANK": rank,
        "WORLD_SIZE": 2,
        "LOCAL_RANK": rank if beside else 0,
        "LOCAL_WORLD_SIZE": 2 if beside else 1,
    }
    return {name: str(value) for name, value in place.items()} | {"TORCHELASTIC_RUN_ID": str(directory)}


def become_rank_0(end: str) -> dict[str, int]:
    """This process, for its writer to see; returns the facts of it."""
    os.environ |= environment_of(0, end, Path.cwd())
    return {"world_size": 2, "data_parallel": 2, "tensor_parallel": 1}


@contextmanager
def beside(end: str, iterations: int, directory: str) -> Iterator[None]:
    """Rank 0 trains in this block: the other rank has begun, and has ended after it."""
    environment = os.environ | environment_of(RANK, end, Path.cwd())
    command = [sys.executable, "-m", "tests.faults.ranks", str(iterations), directory]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"begun\n"
        yield
        other.wait()


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
    if trouble == "fork" and os.fork() == 0:
        sys.stdin.buffer.read()  # until rank 0 is gone
        os._exit(0)
    print("begun", flush=True)
    for iteration in range(1, iterations + 1):
        time.sleep(STEP_S)
        logger.step(make_step(iteration))
    logger.end("completed")
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(2)  # its collector has written everything


@contextmanager
def _no_descriptors(holds: bool) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if holds:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


if __name__ == "__main__":
    main()
