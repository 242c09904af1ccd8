"""Processes that are no training find and drain each other: on one node, and over two by files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from flagscale_perf.spine.companion import Alarm
from flagscale_perf.spine.peers.handover import UNSAID, job_key
from flagscale_perf.spine.peers.node import Gone, Node
from flagscale_perf.training.ranks.collector import COLLECTOR
from flagscale_perf.training.ranks.gatherer import Gathered, Gatherer, Job
from tests.processes.trainer import DEADLINE_S, REPO, wait_for
from tests.toy_peers import TOYS, Toy, ToySum

# Obeys lines on stdin: a number is stored, "end" closes the ring; it answers each with an empty line.
TOY = """
import sys
from pathlib import Path
from flagscale_perf.training.ranks.exchange import directory_of
from flagscale_perf.spine.peers.own import OwnRing
from flagscale_perf.training.ranks.collector import CollectorTask, start_collector
from tests.toy_peers import TOYS, number

key, name, host, directory, is_first = sys.argv[1:]
own = OwnRing.begin(key + host, [name, host])
if int(is_first):
    exchange = str(directory_of(Path(directory), TOYS.noun, key))
    start_collector(CollectorTask(TOYS.path, key + host, name, 1, exchange), TOYS.noun)
print(flush=True)
for line in sys.stdin:
    own.end("completed") if line == "end\\n" else own.put(number(int(line)))
    print(flush=True)
"""


class ToyProcess:
    """One process with a ring."""

    def __init__(self, key: str, toy: Toy, directory: Path, is_first: bool = False) -> None:
        """`is_first`: it starts the collector of its node."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", TOY, key, toy.name, toy.host, str(directory), str(int(is_first))],
            cwd=REPO,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._answer()

    def say(self, line: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        self._answer()

    def _answer(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "\n"

    def collectors(self) -> list[psutil.Process]:
        children = psutil.Process(self.process.pid).children()
        return [child for child in children if COLLECTOR in child.cmdline()]


@contextmanager
def running(key: str, toy: Toy, directory: Path, is_first: bool = False) -> Iterator[ToyProcess]:
    made = ToyProcess(key, toy, directory, is_first)
    collectors = made.collectors() if not is_first else []
    if is_first:
        wait_for("its collector", lambda: collectors.extend(made.collectors()) or bool(collectors))
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()
        psutil.wait_procs(collectors, DEADLINE_S)


class Everything:
    """All that a gatherer in this process has brought, and how to wait for more."""

    def __init__(self, key: str, directory: Path, alarm: Alarm, has_other_nodes: bool = False) -> None:
        expected = None if has_other_nodes else 3
        node = Node(TOYS, key + "here", expected, 0, alarm.watch)
        job = Job(key, "gatherer", 4, has_other_nodes, directory)
        self.gatherer = Gatherer(TOYS, job, node, lambda: True)
        self.new: Gathered[Toy, ToySum] = Gathered([], [], [], [])
        self._alarm = alarm

    def add(self, more: Gathered[Toy, ToySum]) -> None:
        for name in ("owners", "items", "gone", "notes"):
            getattr(self.new, name).extend(getattr(more, name))

    def until(self, condition: Callable[[Gathered[Toy, ToySum]], bool]) -> None:
        """Takes what comes until this holds; a death ends the sleep between two looks."""

        def look() -> bool:
            self._alarm.wait(0.1)
            self.add(self.gatherer.take())
            return condition(self.new)

        wait_for("what is gathered", look)


def test_three_processes_of_one_node_are_drained_and_one_of_them_dies(tmp_path: Path) -> None:
    key = job_key(str(tmp_path))
    toys = [Toy(name, "here") for name in ("server", "client-1", "client-2")]
    with ExitStack() as stack:
        server, first, second = [stack.enter_context(running(key, toy, tmp_path)) for toy in toys]
        stranger = stack.enter_context(running(job_key("another"), Toy("client-3", "here"), tmp_path))
        stranger.say(1000)
        for value in (1, 2, 3):
            first.say(value)
        server.say(10)
        second.say(100)
        found = Everything(key, tmp_path, Alarm())
        found.until(lambda new: len(new.owners) == 3 and len(new.items) == 1)
        assert sorted(found.new.owners) == sorted(toys)
        assert found.new.items == [ToySum("client-1", 3)]
        first.process.kill()
        found.until(lambda new: bool(new.gone))
        assert found.new.gone == [Gone("client-1", 3, UNSAID)]
        assert found.new.items == [ToySum("client-1", 3), ToySum("client-1", 3)], "nothing of it is lost"
        server.say("end")
        found.until(lambda new: len(new.items) == 3)
        found.add(found.gatherer.close())
    assert sorted(found.new.items) == sorted(
        [ToySum("client-1", 3), ToySum("client-1", 3), ToySum("server", 10), ToySum("client-2", 100)]
    )
    assert (found.new.gone[1:], found.new.notes) == ([], [])
    assert list(tmp_path.iterdir()) == [], "no files on one node"


def test_a_process_of_another_node_comes_by_a_file_of_its_collector(
    tmp_path: Path,
) -> None:
    key, far = job_key(str(tmp_path)), Toy("worker-7", "elsewhere")
    with running(key, far, tmp_path, is_first=True) as worker:
        (collector,) = worker.collectors()
        assert not [mapped for mapped in collector.memory_maps() if "libtorch" in mapped.path]
        found = Everything(key, tmp_path, Alarm(), has_other_nodes=True)
        worker.say(1)
        worker.say(2)
        found.until(lambda new: bool(new.items))
        assert (found.new.owners, found.new.items) == ([far], [ToySum("worker-7", 3)])
        assert [path.name for path in (tmp_path / f".toys_{key}").iterdir()].count("node_worker-7.json") == 1
        worker.say(5)
        worker.say("end")
        found.until(lambda new: len(new.items) == 2)
        assert found.new.items[1:] == [ToySum("worker-7", 5)]
        wait_for("the collector's end", lambda: not collector.is_running())
        found.add(found.gatherer.close())
    assert (found.new.gone, found.new.notes) == ([], [])
    assert list(tmp_path.iterdir()) == []
