"""What a node's file says, and when it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.training.ranks import collect
from flagscale_perf.training.ranks.collect import Collector
from flagscale_perf.training.ranks.exchange import Heard, Inbox, Outbox
from flagscale_perf.training.ranks.node import Gone, News
from tests.fakes import make_identity
from tests.unit.training.ranks.test_exchange import KEY, LONG_NS, at_once, make_block

__all__ = ["at_once"]  # a fixture


class FakeNode:
    """Has the news that the test lays down; is over when there is no more."""

    def __init__(self, *news: News) -> None:
        self._news = list(news)

    @property
    def is_over(self) -> bool:
        return not self._news

    def cycle(self, counts_dead: bool) -> News:
        assert counts_dead
        return self._news.pop(0) if self._news else News()

    def close(self) -> News:
        return News()


def make_collector(tmp_path: Path, *news: News) -> Collector:
    return Collector(Outbox(tmp_path, KEY, 8), FakeNode(*news))  # type: ignore[arg-type]


def test_what_is_known_of_the_ranks_reaches_rank_0(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, KEY, 16)
    joined = News([make_identity(8), make_identity(9)], [make_block(8, 0)], [], [(8, "hot")])
    collector = make_collector(
        tmp_path, joined, News(), News(blocks=[make_block(8, 1)], gone=[Gone(9, 0, "dead")])
    )
    collector.cycle()
    first = inbox.look(LONG_NS)
    assert (first.blocks, first.reports[0].identities) == (
        [make_block(8, 0)],
        [make_identity(8), make_identity(9)],
    )
    collector.cycle()
    assert inbox.look(LONG_NS) == Heard(), "nothing new, nothing written"
    collector.cycle()
    second = inbox.look(LONG_NS)
    assert (second.blocks, second.reports[0].gone, second.reports[0].notes) == (
        [make_block(8, 1)],
        [Gone(9, 0, "dead")],
        [(8, "hot")],
    )


def test_nothing_is_written_before_somebody_reads_and_everything_to_a_new_reader(tmp_path: Path) -> None:
    collector = make_collector(tmp_path, News([make_identity(8)], [make_block(8, 0)]), News(), News())
    collector.cycle()
    assert list(tmp_path.iterdir()) == []
    for _ in range(2):
        inbox = Inbox(tmp_path, KEY, 16)
        collector.cycle()
        assert inbox.look(LONG_NS).blocks == [make_block(8, 0)]


def test_the_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "KEPT_NS", -1)  # everything is old at once
    inbox = Inbox(tmp_path, KEY, 16)
    blocks = [make_block(8, number) for number in range(100)]
    make_collector(tmp_path, News([make_identity(8)], blocks)).cycle()
    assert inbox.look(LONG_NS).blocks == blocks[-collect.MIN_KEPT :]
    monkeypatch.setattr(collect, "KEPT_NS", LONG_NS)
    notes = [(8, str(number)) for number in range(1000)]
    make_collector(tmp_path, News([make_identity(8)], blocks * 10, [], notes)).cycle()
    heard = inbox.look(LONG_NS)
    assert (len(heard.blocks), len(heard.reports[0].notes)) == (collect.MAX_KEPT, collect.MAX_NOTES)


def test_it_ends_with_its_ranks(tmp_path: Path) -> None:
    Inbox(tmp_path, KEY, 16)
    waits: list[float] = []
    make_collector(tmp_path, News([make_identity(8)]), News(), News()).run(waits.append, lambda: False)
    assert waits == [collect.PERIOD_S] * 3


def test_it_outlives_its_parent_by_a_moment_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "LINGER_NS", -1)
    news = [News([make_identity(8)]), *[News()] * 100]
    waits: list[float] = []
    make_collector(tmp_path, *news).run(waits.append, lambda: len(waits) >= 2)
    assert len(waits) == 2
