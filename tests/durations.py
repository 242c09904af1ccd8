"""How long each test file takes, as measured: the longest are begun first, so that no core idles at the end.

`make test ARGS=--record-durations` measures anew, into durations.json: seconds by file, those that count.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

RECORDED = Path(__file__).with_name("durations.json")
COUNTS_S = 1.0  # a file that takes less is as good as any other


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help=f"measure what {RECORDED.name} has")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By file: the longest one first. The tests of a file stay together, in their order."""
    recorded: dict[str, float] = json.loads(RECORDED.read_text())
    items.sort(key=lambda item: (-recorded.get(file_of(item.nodeid), 0.0), file_of(item.nodeid)))


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
