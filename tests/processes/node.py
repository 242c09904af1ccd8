"""A node of a job that trains nothing: one process for each of its ranks, which puts steps into its ring when
it is told to.

Run as a program it passes lines on stdin on to its ranks (`RANK COMMAND...`) and their answers to stdout, as
an agent of torchrun would start them: the ranks of two nodes have different parents. `Node` is the test's end
of that.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.processes.trainer import DEADLINE_S, REPO, wait_for

MODULE = "tests.processes.node"


class Node:
    """The test's end of one node."""

    def __init__(self, directory: Path, ranks: range, world_size: int) -> None:
        """`directory` of the monitor's files; the path of its parent tells this job from others."""
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                MODULE,
                "node",
                str(directory),
                str(ranks.start),
                str(ranks.stop),
                str(world_size),
            ],
            cwd=REPO,
            text=True,
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def tell(self, *words: Any) -> str:
        """Sends a command to a rank; returns its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().rstrip("\n")
        assert answer, f"no answer to {words}"
        return answer

    def companions(self, module: str) -> list[psutil.Process]:
        """Living processes of the monitor that this node's ranks have started."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if module in process.cmdline():
                    found.append(process)
        return found


@contextmanager
def nodes(directory: Path, *ranks: range) -> Iterator[list[Node]]:
    """The running nodes of one job; nothing of them outlives the block."""
    world_size = max(each.stop for each in ranks)
    started = [Node(directory, each, world_size) for each in ranks]
    try:
        yield started
    finally:
        for node in started:
            family = psutil.Process(node.process.pid).children(recursive=True)
            node.process.kill()
            node.process.communicate()
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            wait_for(
                "the end of a node", lambda family=family: not any(process.is_running() for process in family)
            )


# --- the programs


def main() -> None:
    if sys.argv[1] == "node":
        _pass_on(sys.argv[2], range(int(sys.argv[3]), int(sys.argv[4])), int(sys.argv[5]))
    else:
        _obey(Path(sys.argv[2]), int(os.environ["RANK"]), sys.argv[3])


def _pass_on(directory: str, ranks: range, world_size: int) -> None:
    children = {}
    for rank in ranks:
        place = {
            "RANK": rank,
            "WORLD_SIZE": world_size,
            "LOCAL_RANK": rank - ranks.start,
            "LOCAL_WORLD_SIZE": len(ranks),
            "GROUP_RANK": ranks.start,
        }
        environment = (
            os.environ
            | {name: str(value) for name, value in place.items()}
            | {"TORCHELASTIC_RUN_ID": directory}
        )
        children[rank] = subprocess.Popen(
            [sys.executable, "-m", MODULE, "rank", directory, f"node{ranks.start}"],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    for line in sys.stdin:
        number, _, command = line.partition(" ")
        child = children[int(number)]
        if command == "kill\n":
            child.kill()
            print("killed", child.wait(DEADLINE_S), flush=True)
            continue
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(command)
        child.stdin.flush()
        print(child.stdout.readline().rstrip("\n"), flush=True)


def _obey(directory: Path, rank: int, hostname: str) -> None:
    """begin; put LAST-ITERATION: steps of 100 ms, of which the higher rank has the higher peak of memory;
    close.
    """
    from flagscale_perf.arguments import PerfConfig
    from flagscale_perf.perf_logger import PerfLogger
    from flagscale_perf.training.ranks.logger import RankLogger
    from flagscale_perf.training.ranks.place import Place
    from tests.fakes import make_facts, make_identity, make_marks, make_step

    identity = make_identity(rank, hostname=hostname, pid=os.getpid())
    place = Place.of(os.environ)
    assert place is not None
    logger: PerfLogger | RankLogger | None = None
    iteration = 0
    for line in sys.stdin:
        command, *words = line.split()
        if command == "begin" and rank == 0:
            config = PerfConfig(enable_perf_monitor=True, perf_log_dir=str(directory), perf_ranks_gb=1)
            facts = make_facts(world_size=place.world_size, data_parallel=place.world_size, tensor_parallel=1)
            logger = PerfLogger.start(config, facts, lambda line: None, identity)
        elif command == "begin":
            logger = RankLogger.start(place, identity, str(directory))
        elif command == "put" and logger is not None:
            for iteration in range(iteration + 1, int(words[0]) + 1):  # noqa: B020 - goes on where it stopped
                logger.step(make_marks(iteration))
                logger.step(make_step(iteration, memory_peak_bytes=(rank + 1) * 10**9))
        elif command == "close" and logger is not None:
            if isinstance(logger, PerfLogger):
                logger.close("completed", DEADLINE_S)
            else:
                logger.end("completed")
        print(json.dumps([command, os.getpid()]), flush=True)


if __name__ == "__main__":
    main()
