"""A node without rank 0: its collector, started by the node's first rank, keeps a file that tells rank 0's
node of its ranks.
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

from flagscale_perf.spine import companion
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.training.ranks.blocks import RankIdentity, encode_block
from flagscale_perf.training.ranks.exchange import NodeReport, Outbox
from flagscale_perf.training.ranks.neighbours import Search
from flagscale_perf.training.ranks.node import Gone, News, Node
from flagscale_perf.training.ranks.place import Place

PERIOD_S = 1.0
KEPT_NS = 30 * NS_PER_S  # what a reader may take to come round again
MIN_KEPT, MAX_KEPT = 2, 64  # blocks of each rank
MAX_NOTES = 64
LINGER_NS = 4 * NS_PER_S  # for the node's other ranks to end, after the first of them


class Collector:
    """What the file says, and when it is written."""

    def __init__(self, outbox: Outbox, node: Node) -> None:
        self._outbox = outbox
        self._node = node
        self._identities: list[RankIdentity] = []
        self._gone: list[Gone] = []
        self._notes: list[tuple[int, str]] = []
        self._blocks: deque[tuple[int, bytes]] = deque()  # with their time
        self._forgotten = 0
        self._written: tuple[str | None, int] = (None, 0)
        self._changes = 0

    def run(self, wait: Callable[[float], None], is_orphan: Callable[[], bool]) -> None:
        """Until the ranks have ended, or a moment after the process that started this one."""
        orphan_ns: int | None = None
        while not (self._identities and self._node.is_over):
            if orphan_ns is None and is_orphan():
                orphan_ns = monotonic_ns()
            if orphan_ns is not None and monotonic_ns() - orphan_ns > LINGER_NS:
                break
            self.cycle()
            wait(PERIOD_S)
        self._keep(self._node.close())
        self._write()
        self._outbox.leave()

    def cycle(self) -> None:
        """Takes what is new of the ranks, and writes it if anybody reads."""
        self._keep(self._node.cycle(counts_dead=True))
        self._write()

    def _keep(self, news: News) -> None:
        now_ns = monotonic_ns()
        self._identities += news.identities
        self._gone += news.gone
        self._notes += news.notes[: MAX_NOTES - len(self._notes)]
        self._blocks += [(now_ns, dump(encode_block(block)).encode()) for block in news.blocks]
        self._changes += len(news.identities) + len(news.gone) + len(news.notes) + len(news.blocks)
        self._forget(now_ns)

    def _forget(self, now_ns: int) -> None:
        ranks = max(1, len(self._identities))
        while len(self._blocks) > MIN_KEPT * ranks and (
            len(self._blocks) > MAX_KEPT * ranks or now_ns - self._blocks[0][0] > KEPT_NS
        ):
            self._blocks.popleft()
            self._forgotten += 1

    def _write(self) -> None:
        token = self._outbox.token()
        if token is None or (token, self._changes) == self._written or not self._identities:
            return
        blocks = [line for _, line in self._blocks]
        try:
            self._outbox.write(
                NodeReport(token, self._identities, self._gone, self._notes, self._forgotten, blocks)
            )
        except OSError:
            return  # rank 0 sees that this node is silent, and says so; the next cycle tries again
        self._written = (token, self._changes)


def main() -> None:
    """The collector process: its task is its argument."""
    companion.settle()
    task = json.loads(sys.argv[1])
    parent_pid: int = task.pop("parent_pid")
    since_ns: int = task.pop("since_ns")
    directory = Path(task.pop("directory"))
    place = Place(**task)
    alarm = companion.Alarm()
    cycles = 0

    def is_orphan() -> bool:
        return os.getppid() != parent_pid

    def wait(seconds: float) -> None:
        nonlocal cycles
        cycles += 1
        alarm.wait(seconds)

    companion.end_after_parent(is_orphan, lambda: cycles)
    node = Node(Search(place.key, parent_pid, place.local_world_size, since_ns), alarm.watch)
    Collector(Outbox(directory, place.key, place.rank), node).run(wait, is_orphan)


if __name__ == "__main__":
    main()
