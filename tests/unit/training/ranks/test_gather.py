"""All ranks brought together; a failure of that ends nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.spine.peers.node import Gone, News
from flagscale_perf.spine.records import EventRecord, Record
from flagscale_perf.training.ranks import exchange, gather
from flagscale_perf.training.ranks.blocks import Block, BlockBuilder, RankIdentity
from flagscale_perf.training.ranks.exchange import NodeReport, Outbox
from flagscale_perf.training.ranks.gather import Gathering, Job
from flagscale_perf.training.ranks.kept import KeptBlocks
from flagscale_perf.training.ranks.place import Place
from flagscale_perf.training.records import IntervalRecord
from tests.fakes import make_event, make_facts, make_identity, make_interval, make_reading, make_step
from tests.unit.training.ranks.test_exchange import KEY, line, make_block, place_of, token_of


class NotingView:
    """Makes an event of everything it is given."""

    def __init__(self, facts: object, *, least: float) -> None:
        """Whatever the facts."""

    def join(self, identities: list[RankIdentity]) -> list[Record]:
        return [event(f"join {[identity.rank for identity in identities]}")]

    def add(self, block: Block) -> list[Record]:
        return [event(f"rank {block.rank} to {block.iteration}")]

    def lost(self, rank: int, iteration: int, why: str) -> list[Record]:
        return [event(f"lost {rank} {iteration}")]

    def vanished(self, why: str) -> Record:
        return event(f"vanished: {why}")

    def summary_due(self, interval: IntervalRecord) -> list[Record]:
        return [event(f"behind {interval.iteration}")]

    def close(self) -> list[Record]:
        return [event("closed")]


class FakeNode:
    """Has the news that the test lays down."""

    def __init__(self) -> None:
        self.news, self.missing = News(), 0

    def cycle(self) -> News:
        given, self.news = self.news, News()
        return given

    def close(self) -> News:
        return News()


def event(text: str) -> EventRecord:
    return make_event("rank", text=text)


def texts(records: list[Record]) -> list[str]:
    return [record.text for record in records if isinstance(record, EventRecord)]


@pytest.fixture(autouse=True)
def noting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "RanksView", NotingView)
    monkeypatch.setattr(exchange, "ROUND_S", 0.0)


def make_gathering(tmp_path: Path, node: FakeNode, here: int = 2) -> Gathering:
    """Rank 0 of 10, `here` of them on its node."""
    job = Job(
        Place(0, 10, 0, here, KEY), make_identity(0), make_facts(), tmp_path, KeptBlocks(tmp_path, 0, 0)
    )
    return Gathering(job, node)  # type: ignore[arg-type]


def test_rank_0_and_those_beside_it(tmp_path: Path) -> None:
    node = FakeNode()
    gathering = make_gathering(tmp_path, node, here=10)
    node.news = News([make_identity(1)], [make_block(1, 0)], [], [("1", "phases switched off")])
    for iteration in range(1, 5):
        gathering.step(make_step(iteration), None, None)
    records, notes = gathering.take()
    assert texts(records) == ["rank 0 to 4", "join [0]", "join [1]", "rank 1 to 4"]
    assert notes == ["rank 1: phases switched off"]
    assert texts(gathering.interval(make_interval(10))) == ["behind 10"]
    gathering.step(make_step(5), None, None)
    assert texts(gathering.close()[0]) == ["rank 0 to 5", "closed"]
    assert list(tmp_path.iterdir()) == [], "no files for a job of one node"


def test_readings_of_rank_0_s_device_go_into_its_blocks(tmp_path: Path) -> None:
    builder = BlockBuilder(0)
    gathering = make_gathering(tmp_path, FakeNode())
    gathering._builder = builder
    gathering.reading(make_reading(1, sm_clock_mhz=1234))
    builder.add(make_step(1), None)
    block = builder.close()
    assert block is not None
    assert block.sm_clock_mhz == 1234


def test_blocks_of_other_nodes_and_their_deaths(tmp_path: Path) -> None:
    gathering = make_gathering(tmp_path, FakeNode())
    gathering.take()
    outbox = Outbox(place_of(tmp_path), "8")
    identities = [make_identity(8), make_identity(9), make_identity(10)]
    gone = [Gone("9", 4, "dead"), Gone("10", 4, "not of this job of 10")]
    lines = [line(make_block(8, 0))]
    outbox.write(NodeReport(token_of(outbox), identities, gone, [("8", "hot")], 0, lines).encode())
    records, notes = gathering.take()
    assert (texts(records), notes) == (["join [8, 9]", "rank 8 to 4", "lost 9 4"], ["rank 8: hot"])
    gathering.close()
    assert list(tmp_path.iterdir()) == []


def test_where_rank_0_was_cut_off_a_death_is_waited_for(tmp_path: Path) -> None:
    """The system tells of the end of a process a moment after its connections are closed."""

    class Dying(FakeNode):
        cycles = 0

        def cycle(self) -> News:
            self.cycles += 1
            return News([], [], [Gone("1", 7, "dead")], []) if self.cycles == 4 else News([make_identity(1)])

    gathering = make_gathering(tmp_path, Dying(), here=10)
    gathering.cut_off("closed its connection")
    assert texts(gathering.close()[0])[-2:] == ["lost 1 7", "closed"]


def test_where_nobody_is_seen_to_die_a_rank_is_lost_nevertheless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "LOSS_NS", 0)
    gathering = make_gathering(tmp_path, FakeNode(), here=10)
    gathering.cut_off("closed its connection")
    assert texts(gathering.close()[0]) == ["join [0]", "vanished: closed its connection", "closed"]


def test_after_the_end_there_is_nothing_more(tmp_path: Path) -> None:
    gathering = make_gathering(tmp_path, FakeNode())
    gathering.take()
    assert texts(gathering.close()[0]) == ["closed"]
    assert gathering.take() == ([], []), "asked once more while the last records are written"
    assert list(tmp_path.iterdir()) == []


def test_a_failure_ends_the_gathering_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathering = make_gathering(tmp_path, FakeNode(), here=10)
    gathering.take()
    monkeypatch.setattr(NotingView, "add", lambda self, block: 1 // 0)
    for iteration in range(1, 20):
        gathering.step(make_step(iteration), None, None)
    why = "nothing is recorded of other ranks any more: ZeroDivisionError: integer division or modulo by zero"
    assert gathering.take() == ([], [why])
    assert (gathering.interval(make_interval(10)), gathering.close()) == ([], ([], []))
