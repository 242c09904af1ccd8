"""Starts the ranks of one node as torchrun does, and at once: torchrun imports torch first, a third of a
short training's time. What is its own (restarts, several nodes, signals) is tried with torchrun itself.

`agent.py RANKS PORT WORDS...` runs `python WORDS...` for each rank, warm where that is possible (warm.py);
`agent.py as-it-is WORDS...` runs it once, in the environment as it is. The first one that fails ends the
others, and this process ends as it did: by its exit code, or its signal.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence

import warm  # beside this script; FlagScale, before us on the path, has a package `tests`, too

AS_IT_IS = "as-it-is"


def environment(rank: int, ranks: int, port: str) -> dict[str, str]:
    """What torchrun tells a worker of itself and of its job."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none"}
    return {name: str(value) for name, value in (place | job | {"TORCHELASTIC_RESTART_COUNT": 0}).items()}


class Cold:
    """`python WORDS...` as any process is started, and all that it starts; the same as `warm.Process`."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        # Without the server's name: where Python has itself started by this script, it would come back here.
        cold = {name: value for name, value in environment.items() if name != warm.SOCKET}
        self.pid = os.posix_spawn(sys.executable, [sys.executable, "-u", *words], cold)
        self._ended = os.pidfd_open(self.pid)

    def fileno(self) -> int:
        return self._ended

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def main() -> int:
    ranks, *words = sys.argv[1:]
    environments: list[Mapping[str, str]] = [os.environ]
    if ranks != AS_IT_IS:
        port = words.pop(0)
        environments = [os.environ | environment(rank, int(ranks), port) for rank in range(int(ranks))]
    start = warm.Process if warm.is_possible(os.environ) else Cold
    running = [start(words, each) for each in environments]

    def pass_on(number: int, _: object = None) -> None:
        for process in running:
            os.kill(process.pid, number)

    if start is warm.Process:  # in sessions of their own, which no signal to ours reaches
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, pass_on)
    failed = 0
    while running:
        for process in select.select(running, [], [])[0]:
            running.remove(process)
            code = process.wait()
            if code and not failed:
                failed = code
                pass_on(signal.SIGTERM)
    return failed


if __name__ == "__main__":
    ended = main()
    if ended < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-ended, signal.SIG_DFL)
        os.kill(os.getpid(), -ended)
    sys.exit(ended)
