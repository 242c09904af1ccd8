"""Runs a training script with each rank on a core of its own, and beside rank 1 busy loops on that core.

`crowded.py LOOPS SCRIPT ARGS...`, under `-m flagscale_perf.launch`. The loops begin with the training. At the
start of each train step and at the end, each rank says in `schedule_RANK.csv` when that is, and for how long
its training thread has had no CPU so far, by the kernel's count.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

_LOOP = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


def _say(rank: int) -> None:
    _, delay_ns, _ = Path("/proc/thread-self/schedstat").read_text().split()
    with open(f"schedule_{rank}.csv", "a") as file:
        file.write(f"{time.monotonic_ns()},{delay_ns}\n")


def main() -> None:
    """Runs the script."""
    _, loops, *sys.argv = sys.argv
    rank, cores = int(os.environ["RANK"]), sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    del sys.path[0]  # this directory has a flagscale.py
    loop: Any = import_module("flagscale.train.train")
    train_step, begun = loop.train_step, list[subprocess.Popen[bytes]]()

    def crowded_step(*args: Any, **kwargs: Any) -> Any:
        """A train step of the host."""
        while rank == 1 and len(begun) < int(loops):
            begun.append(subprocess.Popen([sys.executable, "-c", _LOOP]))
        _say(rank)
        return train_step(*args, **kwargs)

    loop.train_step = crowded_step
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    runpy.run_path(sys.argv[0], run_name="__main__")
    _say(rank)


if __name__ == "__main__":
    main()
