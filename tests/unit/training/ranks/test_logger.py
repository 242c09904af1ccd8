"""The training side of a rank other than 0, its ring drained as another process would."""

from __future__ import annotations

import os
import threading
from dataclasses import asdict
from pathlib import Path

import pytest

from flagscale_perf.spine.peers import own
from flagscale_perf.spine.peers.node import Node
from flagscale_perf.training.ranks import logger as logger_module
from flagscale_perf.training.ranks.collector import CollectorTask
from flagscale_perf.training.ranks.kind import RANKS_WITHOUT_DEVICES
from flagscale_perf.training.ranks.logger import RankLogger
from flagscale_perf.training.ranks.place import Place
from tests.fakes import make_identity, make_marks, make_step

PLACE = Place(9, 16, 1, 8, "0123456789abcdef")


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[CollectorTask]:
    """Of the collectors that would have been started."""
    asked: list[CollectorTask] = []
    monkeypatch.setattr(logger_module, "start_collector", lambda task: asked.append(task))
    monkeypatch.setattr(own, "LAST_TRIES", 1)
    return asked


def start(place: Place = PLACE) -> RankLogger:
    return RankLogger.start(place, make_identity(place.rank), "logs")


def settled() -> None:
    """Waits for the thread that hands the ring over."""
    for thread in threading.enumerate():
        if thread.name == "flagscale_perf ring":
            thread.join(60)


def test_what_it_stores_comes_to_the_one_that_drains_its_node(tasks: list[CollectorTask]) -> None:
    node = Node(RANKS_WITHOUT_DEVICES, PLACE.node_key, 1, 0, os.close)
    node.cycle()
    logger = start()
    logger.step(make_marks(1))
    logger.step(make_step(1))
    logger.end("completed")
    news = node.close()
    assert (news.owners, [item.iteration for item in news.items]) == ([make_identity(9)], [1])
    assert (news.gone, node.is_over) == ([], True)
    assert tasks == [], "another rank of the node starts the collector"
    settled()


def test_the_first_rank_of_a_node_starts_its_collector(tasks: list[CollectorTask]) -> None:
    start(PLACE._replace(rank=8, local_rank=0)).end("completed")
    settled()
    assert [asdict(task) for task in tasks] == [
        {
            "key": PLACE.node_key,
            "name": "8",
            "expected": 8,
            "directory": str(Path.cwd() / "logs" / f".ranks_{PLACE.key}"),
        }
    ]
