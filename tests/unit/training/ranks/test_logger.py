"""The training side of a rank other than 0, its ring read as another process would."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from flagscale_perf.spine.peers import own
from flagscale_perf.spine.peers.own import CollectorTask
from flagscale_perf.spine.peers.search import Search
from flagscale_perf.training.ranks import logger as logger_module
from flagscale_perf.training.ranks.kind import RANKS
from flagscale_perf.training.ranks.logger import RankLogger
from flagscale_perf.training.ranks.place import Place
from tests.fakes import make_identity, make_marks, make_step

PLACE = Place(9, 16, 1, 8, "0123456789abcdef")


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[CollectorTask]]:
    """Of the collectors that would have been started."""
    asked: list[CollectorTask] = []
    monkeypatch.setattr(logger_module, "start_collector", lambda task, noun: asked.append(task))
    yield asked
    while own._ended:
        own._ended.pop().release()


def start(place: Place = PLACE) -> RankLogger:
    return RankLogger.start(place, make_identity(place.rank), "logs")


def test_what_it_stores_is_found_by_others(tasks: list[CollectorTask]) -> None:
    logger = start()
    (peer,) = Search(RANKS, PLACE.key, os.getpid(), 1, 0).look(1)
    logger.step(make_marks(1))
    logger.step(make_step(1))
    assert (peer.name, peer.owner, peer.drain()) == ("9", make_identity(9), [make_marks(1), make_step(1)])
    logger.end("completed")
    assert peer.has_ended
    peer.release()
    assert tasks == [], "another rank of the node starts the collector"


def test_the_first_rank_of_a_node_starts_its_collector(tasks: list[CollectorTask]) -> None:
    start(PLACE._replace(rank=8, local_rank=0)).end("completed")
    assert [asdict(task) for task in tasks] == [
        {
            "kind": "flagscale_perf.training.ranks.kind:RANKS",
            "key": PLACE.key,
            "name": "8",
            "expected": 8,
            "directory": str(Path.cwd() / "logs" / f".ranks_{PLACE.key}"),
        }
    ]
