"""How the test files are dealt to the processes of `make test`: what each takes, as measured, decides.

Files that take some seconds are collected by every process, and each process that is free runs the
longest that is left, so that no core idles at the end. The many others are divided beforehand, and run first:
to collect them all would take each process half a minute.

`make test ARGS=--record-durations` measures anew, into durations.json: seconds by file, those that count.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

RECORDED = Path(__file__).with_name("durations.json")
COUNTS_S = 8.0  # a file that takes less is as good as any other


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help=f"measure what {RECORDED.name} has")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Which share of the files a process has; one that takes the place of a dead one has them all."""
    share, shares = int(node.workerinput["workerid"].removeprefix("gw")), node.workerinput["workercount"]
    if node.config.getoption("dist") == "loadfile" and share < shares:
        node.workerinput["share"] = [share, shares]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """In a process of several: a file of another's share."""
    given = getattr(config, "workerinput", {}).get("share")
    if given is None or not collection_path.name.startswith("test_"):
        return None
    share, shares = given
    file = collection_path.relative_to(config.rootpath).as_posix()
    is_its_own = file in recorded() or zlib.crc32(file.encode()) % shares == share
    return None if is_its_own else True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Of `--dist loadfile`, see above."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Shares(LoadFileScheduling):
        """Deals files of which not every process has collected each."""

        def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
            self.registered_collections[node] = [*collection]

        def schedule(self) -> None:
            if self.collection is None:
                collected = [nodeid for each in self.registered_collections.values() for nodeid in each]
                self.collection = [*dict.fromkeys(collected)]
                for nodeid in sorted(self.collection, key=lambda nodeid: file_of(nodeid) in recorded()):
                    self.workqueue.setdefault(file_of(nodeid), {})[nodeid] = False
                refuse_divided(self.workqueue, self.registered_collections.values())
                config.pluginmanager.get_plugin("session").testscollected = len(self.collection)
            for node in [*self.nodes, *self.nodes]:  # each knows its next file when it ends one
                self._reschedule(node)

        def _assign_work_unit(self, node: Any) -> None:
            place = {nodeid: index for index, nodeid in enumerate(self.registered_collections[node])}
            file = next(
                (file for file, tests in self.workqueue.items() if place.keys() >= tests.keys()), None
            )
            if file is None:
                node.shutdown()
                return
            tests = self.assigned_work[node][file] = self.workqueue.pop(file)
            node.send_runtest_some([place[nodeid] for nodeid, is_done in tests.items() if not is_done])

    return Shares(config, log)


def refuse_divided(files: Mapping[str, Collection[str]], collected: Iterable[Sequence[str]]) -> None:
    """Raises pytest.UsageError for tests of a file that no process has collected all of."""
    shares = [{*each} for each in collected]
    for file, tests in files.items():
        if not any(share.issuperset(tests) for share in shares):
            raise pytest.UsageError(f"the tests of {file} have other names in each process")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By file: the longest one first. The tests of a file stay together, in their order."""
    items.sort(key=lambda item: (-recorded().get(file_of(item.nodeid), 0.0), file_of(item.nodeid)))


@cache
def recorded() -> dict[str, float]:
    """Seconds by file."""
    seconds: dict[str, float] = json.loads(RECORDED.read_text())
    return {file: took_s for file, took_s in seconds.items() if took_s >= COUNTS_S}


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


class Recorder:
    """Adds up what the tests of each file took, their fixtures included."""

    def __init__(self) -> None:
        self._took_s: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._took_s[file_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        """What was not run this time keeps its seconds, unless its file is gone."""
        root = RECORDED.parents[1]
        before = {file: s for file, s in json.loads(RECORDED.read_text()).items() if (root / file).exists()}
        merged = before | {file: round(s, 1) for file, s in self._took_s.items()}
        kept = {file: s for file, s in sorted(merged.items()) if s >= COUNTS_S}
        RECORDED.write_text(json.dumps(kept, indent=1) + "\n")
