"""Everything that is heard of the ranks, brought together; and the wall around it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from flagscale_perf.spine.records import EventRecord
from flagscale_perf.training.ranks import exchange, gather
from flagscale_perf.training.ranks.blocks import Block, BlockBuilder, RankIdentity
from flagscale_perf.training.ranks.exchange import NodeReport, Outbox, directory_name
from flagscale_perf.training.ranks.gather import Gathering, Job
from flagscale_perf.training.ranks.node import Gone, News
from flagscale_perf.training.ranks.place import Place
from flagscale_perf.training.records import IntervalRecord, Record
from tests.fakes import make_event, make_facts, make_identity, make_interval, make_reading, make_step
from tests.unit.training.ranks.test_exchange import KEY, line, make_block


class NotingView:
    """Makes an event of everything it is told."""

    def __init__(self, facts: object) -> None:
        """Whatever the facts."""

    def met(self, identities: list[RankIdentity]) -> list[Record]:
        return [event(f"met {[identity.rank for identity in identities]}")]

    def add(self, block: Block) -> list[Record]:
        return [event(f"rank {block.rank} to {block.iteration}")]

    def gone(self, rank: int, iteration: int, why: str) -> list[Record]:
        return [event(f"gone {rank} {iteration}")]

    def summary_due(self, interval: IntervalRecord) -> list[Record]:
        return [event(f"behind {interval.iteration}")]

    def close(self) -> list[Record]:
        return [event("closed")]


class FakeNode:
    """Has the news that the test lays down."""

    def __init__(self) -> None:
        self.news, self.missing = News(), 0
        self.counted: list[bool] = []

    def cycle(self, counts_dead: bool) -> News:
        self.counted.append(counts_dead)
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


def make_gathering(tmp_path: Path, node: FakeNode, here: int = 2, alive: bool = True) -> Gathering:
    """Rank 0 of 10, `here` of them on its node."""
    job = Job(Place(0, 10, 0, here, KEY), make_identity(0), asdict(make_facts()), tmp_path)
    return Gathering(job, node, lambda: alive)  # type: ignore[arg-type]


def test_rank_0_and_its_neighbours(tmp_path: Path) -> None:
    node = FakeNode()
    gathering = make_gathering(tmp_path, node, here=10)
    node.news = News([make_identity(1)], [make_block(1, 0)], [], [(1, "phases switched off")])
    for iteration in range(1, 5):
        gathering.step(make_step(iteration), None)
    records, notes = gathering.take()
    assert texts(records) == ["rank 0 to 4", "met [0]", "met [1]", "rank 1 to 4"]
    assert notes == ["rank 1: phases switched off"]
    assert texts(gathering.interval(make_interval(10))) == ["behind 10"]
    gathering.step(make_step(5), None)
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


def test_other_nodes_are_read_and_the_dead_told_once(tmp_path: Path) -> None:
    node = FakeNode()
    gathering = make_gathering(tmp_path, node)
    gathering.take()
    outbox = Outbox(tmp_path, KEY, 8)
    token = outbox.token()
    assert token is not None
    report = NodeReport(
        token, [make_identity(8), make_identity(9)], [], [(8, "hot")], 0, [line(make_block(8, 0))]
    )
    outbox.write(report)
    records, notes = gathering.take()
    assert (texts(records), notes) == (["met [8, 9]", "rank 8 to 4"], ["rank 8: hot"])
    outbox.write(
        NodeReport(
            token,
            report.identities,
            [Gone(9, 4, "dead"), Gone(7, 4, "of no node")],
            report.notes,
            0,
            report.blocks,
        )
    )
    assert texts(gathering.take()[0]) == ["gone 9 4"]
    node.news = News(gone=[Gone(9, 4, "dead")])
    assert gathering.take() == ([], [])
    gathering.close()
    assert list(tmp_path.iterdir()) == []


def test_who_dies_after_rank_0_is_not_counted(tmp_path: Path) -> None:
    node = FakeNode()
    gathering = make_gathering(tmp_path, node, alive=False)
    gathering.take()
    gathering.close()
    assert node.counted == [False]


def test_what_troubles_every_rank_is_said_once(tmp_path: Path) -> None:
    node = FakeNode()
    gathering = make_gathering(tmp_path, node)
    node.news = News(notes=[(1, "no hardware counters"), (2, "no hardware counters"), (3, "hot")])
    assert gathering.take()[1] == ["rank 1: no hardware counters", "rank 3: hot"]
    node.news = News(notes=[(4, "hot"), *((5, str(number)) for number in range(1000))])
    assert len(gathering.take()[1]) == gather.MAX_NOTES - 2


def test_silence_is_said_once_with_its_likely_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "SILENCE_NS", 0)
    node = FakeNode()
    node.missing = 1
    gathering = make_gathering(tmp_path, node)
    assert gathering.take()[1] == [
        "1 ranks of this node are silent: no process of this user that tells for them is to be seen in /proc",
        f"8 ranks of other nodes are silent: {tmp_path} is perhaps not the same directory on every node",
    ]
    assert gathering.take()[1] == []


def test_where_the_files_cannot_be_the_rest_goes_on(tmp_path: Path) -> None:
    (tmp_path / directory_name(KEY)).write_text("in the way")
    node = FakeNode()
    node.news = News([make_identity(1)])
    gathering = make_gathering(tmp_path, node)
    records, notes = gathering.take()
    assert texts(records) == ["met [0]", "met [1]"]
    assert [note.split(":")[0] for note in notes] == ["the ranks of other nodes are not heard"]
    assert gathering.take() == ([], []), "said once"
    (tmp_path / directory_name(KEY)).unlink()
    assert gathering.take() == ([], ["the ranks of other nodes are heard again"])
    assert Outbox(tmp_path, KEY, 8).token() is not None


def test_after_the_end_there_is_nothing_more(tmp_path: Path) -> None:
    gathering = make_gathering(tmp_path, FakeNode())
    gathering.take()
    assert texts(gathering.close()[0]) == ["closed"]
    assert gathering.take() == ([], []), "asked once more while the last records are written"
    assert list(tmp_path.iterdir()) == []


def test_a_hostile_file_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    gathering = make_gathering(tmp_path, FakeNode())
    gathering.take()
    outbox = Outbox(tmp_path, KEY, 8)
    outbox.write(NodeReport(outbox.token() or "", [make_identity(8)], [], [], 0, []))
    (tmp_path / directory_name(KEY) / "node_2.json").write_text("{}")
    records, notes = gathering.take()
    assert (texts(records), notes) == (
        ["met [8]"],
        ["not all is known of the ranks of a node: node_2.json: no report of a node: 'token'"],
    )


def test_a_failure_ends_the_gathering_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathering = make_gathering(tmp_path, FakeNode(), here=10)
    gathering.take()
    monkeypatch.setattr(NotingView, "add", lambda self, block: 1 // 0)
    for iteration in range(1, 20):
        gathering.step(make_step(iteration), None)
    why = "nothing is recorded of other ranks any more: ZeroDivisionError: integer division or modulo by zero"
    assert gathering.take() == ([], [why])
    assert (gathering.interval(make_interval(10)), gathering.close()) == ([], ([], []))
