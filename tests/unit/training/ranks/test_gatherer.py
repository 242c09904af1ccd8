"""The processes of a job brought together: those beside, those of other nodes, and the notes about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.spine.peers.node import Gone, News
from flagscale_perf.training.ranks import exchange
from flagscale_perf.training.ranks import gatherer as gatherer_module
from flagscale_perf.training.ranks.blocks import RankIdentity
from flagscale_perf.training.ranks.exchange import NodeReport, Outbox
from flagscale_perf.training.ranks.gatherer import Gathered, Gatherer
from flagscale_perf.training.ranks.kept import KeptBlocks
from flagscale_perf.training.ranks.kind import RankItem
from flagscale_perf.training.ranks.place import Place
from tests.fakes import make_identity
from tests.unit.training.ranks.test_exchange import KEY, line, make_block, place_of, token_of

NOTHING = Gathered([], [], [], [])


class FakeNode:
    """Has the news that the test lays down."""

    def __init__(self) -> None:
        self.news: News[RankIdentity, RankItem] = News()
        self.missing = 0
        self.requested: list[object] = []

    def request(self, content: object) -> None:
        self.requested.append(content)

    def cycle(self) -> News[RankIdentity, RankItem]:
        given, self.news = self.news, News()
        return given

    def close(self) -> News[RankIdentity, RankItem]:
        return News()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "ROUND_S", 0.0)


def make_gatherer(tmp_path: Path, node: FakeNode, one_node: bool = False) -> Gatherer:
    """Of a job of ten whose process "0" gathers."""
    place = Place(0, 10, 0, 10 if one_node else 2, KEY)
    return Gatherer(place, tmp_path, KeptBlocks(tmp_path, 0, 0), node)  # type: ignore[arg-type]


def test_the_processes_beside(tmp_path: Path) -> None:
    node = FakeNode()
    gatherer = make_gatherer(tmp_path, node, one_node=True)
    node.news = News(
        [make_identity(0), make_identity(1)], [make_block(1, 3)], [], [("1", "phases switched off")]
    )
    assert gatherer.take() == Gathered(
        [make_identity(1)], [make_block(1, 3)], [], ["rank 1: phases switched off"]
    )
    assert gatherer.take() == gatherer.close() == NOTHING
    assert list(tmp_path.iterdir()) == [], "no files for a job of one node"


def test_other_nodes_are_read_and_everybody_is_met_and_dies_once(tmp_path: Path) -> None:
    node = FakeNode()
    gatherer = make_gatherer(tmp_path, node)
    gatherer.take()
    outbox = Outbox(place_of(tmp_path), "8")
    token = token_of(outbox)
    owners, notes, items = [make_identity(8), make_identity(9)], [("8", "hot")], [line(make_block(8, 4))]
    outbox.write(NodeReport(token, owners, [], notes, 0, items).encode())
    assert gatherer.take() == Gathered(owners, [make_block(8, 4)], [], ["rank 8: hot"])
    gone = [Gone("9", 4, "dead"), Gone("7", 4, "of no node")]
    outbox.write(NodeReport(token, owners, gone, notes, 0, items).encode())
    assert gatherer.take() == Gathered([], [], [Gone("9", 4, "dead")], [])
    node.news = News(gone=[Gone("9", 4, "dead")])
    assert gatherer.take() == NOTHING
    gatherer.close()
    assert list(tmp_path.iterdir()) == []


def test_what_troubles_every_process_is_said_once(tmp_path: Path) -> None:
    node = FakeNode()
    gatherer = make_gatherer(tmp_path, node)
    node.news = News(notes=[("1", "no counters"), ("2", "no counters"), ("3", "hot")])
    assert gatherer.take().notes == ["rank 1: no counters", "rank 3: hot"]
    node.news = News(notes=[("4", "hot"), *(("5", str(number)) for number in range(1000))])
    assert len(gatherer.take().notes) == gatherer_module.MAX_NOTES - 2


def test_silence_is_said_once_with_its_likely_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatherer_module, "SILENCE_NS", 0)
    node = FakeNode()
    node.missing = 1
    gatherer = make_gatherer(tmp_path, node)
    assert gatherer.take().notes == [
        "1 rank of this node is silent: no process of this user has handed their records over",
        f"8 ranks of other nodes are silent: {tmp_path} is perhaps not the same directory on every node",
    ]
    assert gatherer.take().notes == []


def test_where_the_files_cannot_be_the_rest_goes_on(tmp_path: Path) -> None:
    place_of(tmp_path).write_text("in the way")
    node = FakeNode()
    node.news = News([make_identity(1)])
    gatherer = make_gatherer(tmp_path, node)
    new = gatherer.take()
    assert new.owners == [make_identity(1)]
    assert [note.split(":")[0] for note in new.notes] == ["cannot read other nodes' ranks"]
    assert gatherer.take() == NOTHING, "said once"
    place_of(tmp_path).unlink()
    assert gatherer.take().notes == ["other nodes' ranks are read again"]
    assert Outbox(place_of(tmp_path), "8").beacon() is not None


def test_a_hostile_file_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    gatherer = make_gatherer(tmp_path, FakeNode())
    gatherer.take()
    outbox = Outbox(place_of(tmp_path), "8")
    outbox.write(NodeReport(token_of(outbox), [make_identity(8)], [], [], 0, []).encode())
    (place_of(tmp_path) / "node_2.json").write_text("{}")
    complaint = "incomplete data from another node's ranks: node_2.json: no report of a node: 'token'"
    assert gatherer.take() == Gathered([make_identity(8)], [], [], [complaint])


def test_a_request_goes_to_every_node(tmp_path: Path) -> None:
    node = FakeNode()
    gatherer = make_gatherer(tmp_path, node)
    gatherer.request(1)
    gatherer.take()
    beacon = Outbox(place_of(tmp_path), "8").beacon()
    assert (node.requested, beacon and beacon.request) == ([1], 1)
    gatherer.request(2)
    beacon = Outbox(place_of(tmp_path), "8").beacon()
    assert (node.requested, beacon and beacon.request) == ([1, 2], 2)
