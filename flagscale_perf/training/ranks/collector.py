"""The collector process of a node: drains the node's ranks and keeps one file for the gathering process.

It imports no torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

from flagscale_perf.spine import companion
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.peers.node import Gone, News, Node
from flagscale_perf.training.ranks.blocks import RankIdentity
from flagscale_perf.training.ranks.exchange import MAX_NODE_BYTES, NodeReport, Outbox
from flagscale_perf.training.ranks.kind import RANKS, RankItem, encode_item

COLLECTOR = "flagscale_perf.training.ranks.collector"
MAX_COLLECTORS = 3  # of one node
PERIOD_S = 1.0
KEPT_NS = 30 * NS_PER_S  # longer than a reader of many nodes needs for one round
MIN_KEPT, MAX_KEPT = 2, 64  # items of each process
MAX_BYTES = MAX_NODE_BYTES * 3 // 4  # of all items; the line about the node needs room, too
MAX_NOTES = 64
LINGER_NS = 4 * NS_PER_S  # that the node's other processes may take to end after the one that started this


@dataclass(frozen=True)
class CollectorTask:
    """The task of a collector process.

    Attributes:
        key: the key with which the node's processes hand their rings over.
        name: the member that starts the collector; the node's file is called after it.
        expected: members on this node, this one included; None where unknown.
        directory: of the exchange, see `exchange.directory_of`.
    """

    key: str
    name: str
    expected: int | None
    directory: str


class Collector:
    """Drains the rings of a node's ranks into the node's file."""

    def __init__(self, outbox: Outbox, node: Node[RankIdentity, RankItem]) -> None:
        self._outbox = outbox
        self._node = node
        self._name = os.urandom(8).hex()
        self._owners: list[RankIdentity] = []
        self._gone: list[Gone] = []
        self._notes: list[tuple[str, str]] = []
        self._items: deque[tuple[int, bytes]] = deque()  # with their time
        self._dropped = 0  # items that are no longer in the file
        self._item_bytes = 0
        self._changes = 0
        self._request: Any = None
        self._written: tuple[str | None, int] = (None, 0)

    def run(self, wait: Callable[[float], None], is_orphan: Callable[[], bool]) -> None:
        """Drains until the node's processes have ended, or a moment after the one that started this."""
        orphan_ns: int | None = None
        while not (self._owners and self._node.is_over):
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
        """Takes what is new, and writes it if anybody reads."""
        beacon = self._outbox.beacon()
        if beacon is not None and beacon.request != self._request:
            self._request = beacon.request
            self._node.request(beacon.request)
        self._keep(self._node.cycle())
        self._write()

    def _keep(self, news: News[RankIdentity, RankItem]) -> None:
        now_ns = monotonic_ns()
        self._owners += news.owners
        self._gone += news.gone
        self._notes += news.notes[: MAX_NOTES - len(self._notes)]
        for item in news.items:
            line = dump(encode_item(item)).encode()
            self._items.append((now_ns, line))
            self._item_bytes += len(line)
        self._changes += len(news.owners) + len(news.gone) + len(news.notes) + len(news.items)
        self._drop_old(now_ns)

    def _drop_old(self, now_ns: int) -> None:
        processes = max(1, len(self._owners))
        while self._item_bytes > MAX_BYTES or (
            len(self._items) > MIN_KEPT * processes
            and (len(self._items) > MAX_KEPT * processes or now_ns - self._items[0][0] > KEPT_NS)
        ):
            self._item_bytes -= len(self._items.popleft()[1])
            self._dropped += 1

    def _write(self) -> None:
        beacon = self._outbox.beacon()
        if beacon is None or (beacon.token, self._changes) == self._written or not self._owners:
            return
        items = [line for _, line in self._items]
        report = NodeReport(
            beacon.token, self._owners, self._gone, self._notes, self._dropped, items, self._name
        )
        try:
            self._outbox.write(report.encode())
        except OSError:
            return  # the next cycle tries again; the gathering process reports that this node is silent
        self._written = (beacon.token, self._changes)


def start_collector(task: CollectorTask) -> None:
    """Starts this node's collector, and the next should it be killed, on a thread of its own, as a slow disk
    may take its time over a new process. The collector ends by itself soon after this process.
    """
    words = dump(asdict(task) | {"parent_pid": os.getpid(), "since_ns": monotonic_ns()})
    try:
        threading.Thread(
            target=_run_collector, args=(words,), name="flagscale_perf collector", daemon=True
        ).start()
    except RuntimeError as error:
        _complain(error)


def _run_collector(words: str) -> None:
    try:
        for _ in range(MAX_COLLECTORS):
            if not companion.start(COLLECTOR, words, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL).wait():
                return
        raise OSError(f"{MAX_COLLECTORS} of them have died")
    except (OSError, subprocess.SubprocessError) as error:
        _complain(error)


def _complain(error: Exception) -> None:
    """Complains on this process's stderr: the gathering process has no way to know."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # a closed stderr must not end the host
            line = f"flagscale_perf: no collector process: {type(error).__name__}: {error}"
            print(f"{line}; nothing is recorded of this node's ranks", file=sys.stderr, flush=True)


def main() -> None:
    """The process: its task is its argument."""
    companion.settle()
    companion.give_way()
    words: dict[str, Any] = json.loads(sys.argv[1])
    parent_pid: int = words.pop("parent_pid")
    since_ns: int = words.pop("since_ns")
    task = CollectorTask(**words)
    alarm = companion.Alarm()
    cycles = 0

    def is_orphan() -> bool:
        return os.getppid() != parent_pid

    def wait(seconds: float) -> None:
        nonlocal cycles
        cycles += 1
        alarm.wait(seconds)

    companion.end_after_parent(is_orphan, lambda: cycles)
    node = Node(RANKS, task.key, task.expected, since_ns, alarm.watch)
    Collector(Outbox(Path(task.directory), task.name), node).run(wait, is_orphan)


if __name__ == "__main__":
    main()
