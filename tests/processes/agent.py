"""Starts the ranks of one node as torchrun does, and at once: torchrun imports torch first, a third of a
short training's time. What is its own (restarts, several nodes, signals) is tried with torchrun itself.

`agent.py RANKS PORT WORDS...` runs `python WORDS...` for each rank. The first one that fails ends the others.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

PERIOD_S = 0.02


def environment(rank: int, ranks: int, port: str) -> dict[str, str]:
    """What torchrun tells a worker of itself and of its job."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none"}
    return {name: str(value) for name, value in (place | job | {"TORCHELASTIC_RESTART_COUNT": 0}).items()}


def main() -> int:
    ranks, port, *words = sys.argv[1:]
    workers = [
        subprocess.Popen([sys.executable, "-u", *words], env=os.environ | environment(rank, int(ranks), port))
        for rank in range(int(ranks))
    ]
    while None in (codes := [worker.poll() for worker in workers]) and not any(codes):
        time.sleep(PERIOD_S)
    for worker in workers:
        if worker.poll() is None:
            worker.terminate()
    return int(any([worker.wait() for worker in workers]))


if __name__ == "__main__":
    sys.exit(main())
