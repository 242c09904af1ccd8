"""What a node's file contains, and when it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.spine.peers.node import Gone, News
from flagscale_perf.training.ranks import collector as collector_module
from flagscale_perf.training.ranks.collector import Collector
from flagscale_perf.training.ranks.exchange import Outbox, Received
from tests.fakes import make_identity
from tests.unit.training.ranks.test_exchange import LONG_NS, at_once, line, make_block, make_inbox, place_of

__all__ = ["at_once"]  # a fixture


class FakeNode:
    """Has the news that the test lays down; is over when there is no more."""

    def __init__(self, *news: News) -> None:
        self._news = list(news)
        self.requested: object = None

    @property
    def is_over(self) -> bool:
        return not self._news

    def request(self, content: object) -> None:
        self.requested = content

    def cycle(self) -> News:
        return self._news.pop(0) if self._news else News()

    def close(self) -> News:
        return News()


def make_collector(tmp_path: Path, *news: News) -> Collector:
    return Collector(Outbox(place_of(tmp_path), "8"), FakeNode(*news))  # type: ignore[arg-type]


def test_what_is_known_of_a_node_reaches_whoever_gathers(tmp_path: Path) -> None:
    inbox = make_inbox(tmp_path)
    joined = News([make_identity(8), make_identity(9)], [make_block(8, 0)], [], [("8", "hot")])
    collector = make_collector(
        tmp_path, joined, News(), News(items=[make_block(8, 1)], gone=[Gone("9", 0, "dead")])
    )
    collector.cycle()
    first = inbox.look(LONG_NS)
    assert (first.items, first.reports[0].owners) == (
        [make_block(8, 0)],
        [make_identity(8), make_identity(9)],
    )
    collector.cycle()
    assert inbox.look(LONG_NS) == Received(), "nothing new, nothing written"
    collector.cycle()
    second = inbox.look(LONG_NS)
    assert (second.items, second.reports[0].gone, second.reports[0].notes) == (
        [make_block(8, 1)],
        [Gone("9", 0, "dead")],
        [("8", "hot")],
    )


def test_nothing_is_written_before_somebody_reads_and_everything_to_a_new_reader(tmp_path: Path) -> None:
    collector = make_collector(tmp_path, News([make_identity(8)], [make_block(8, 0)]), News(), News())
    collector.cycle()
    assert list(tmp_path.iterdir()) == []
    for _ in range(2):
        inbox = make_inbox(tmp_path)
        collector.cycle()
        assert inbox.look(LONG_NS).items == [make_block(8, 0)]


def test_the_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_module, "KEPT_NS", -1)  # everything is old at once
    inbox = make_inbox(tmp_path)
    blocks = [make_block(8, number) for number in range(100)]
    make_collector(tmp_path, News([make_identity(8)], blocks)).cycle()
    assert inbox.look(LONG_NS).items == blocks[-collector_module.MIN_KEPT :]
    monkeypatch.setattr(collector_module, "KEPT_NS", LONG_NS)
    notes = [("8", str(number)) for number in range(1000)]
    make_collector(tmp_path, News([make_identity(8)], blocks * 10, [], notes)).cycle()
    received = inbox.look(LONG_NS)
    assert (len(received.items), len(received.reports[0].notes)) == (
        collector_module.MAX_KEPT,
        collector_module.MAX_NOTES,
    )


def test_it_ends_with_its_processes(tmp_path: Path) -> None:
    make_inbox(tmp_path)
    waits: list[float] = []
    make_collector(tmp_path, News([make_identity(8)]), News(), News()).run(waits.append, lambda: False)
    assert waits == [collector_module.PERIOD_S] * 3


def test_it_outlives_its_parent_by_a_moment_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_module, "LINGER_NS", -1)
    news = [News([make_identity(8)]), *[News()] * 100]
    waits: list[float] = []
    make_collector(tmp_path, *news).run(waits.append, lambda: len(waits) >= 2)
    assert len(waits) == 2


def test_a_request_is_passed_on(tmp_path: Path) -> None:
    node, inbox = FakeNode(News([make_identity(8)])), make_inbox(tmp_path)
    collector = Collector(Outbox(place_of(tmp_path), "8"), node)  # type: ignore[arg-type]
    collector.cycle()
    assert node.requested is None
    inbox.request({"more": 3})
    collector.cycle()
    assert node.requested == {"more": 3}


def test_long_items_do_not_make_the_file_too_long_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [make_block(8, 10**6 + number) for number in range(20)]  # their lines are equally long
    monkeypatch.setattr(collector_module, "MAX_BYTES", 7 * len(line(blocks[0])))
    inbox = make_inbox(tmp_path)
    make_collector(tmp_path, News([make_identity(8)], blocks)).cycle()
    received = inbox.look(LONG_NS)
    assert received.items == blocks[-7:]
    assert received.complaints == ["13 blocks were gone before they were read, and perhaps more later"]
