"""The files between nodes: what is written arrives once, and nothing planted or damaged is believed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.peers.node import Gone
from flagscale_perf.training.ranks import exchange
from flagscale_perf.training.ranks.blocks import Block
from flagscale_perf.training.ranks.exchange import (
    BEACON,
    Inbox,
    NodeReport,
    Outbox,
    Received,
    directory_of,
    prune,
)
from flagscale_perf.training.ranks.identity import content_of
from flagscale_perf.training.ranks.kind import RankItem, encode_item
from tests.fakes import make_identity

KEY = "0123456789abcdef"
LONG_NS = 60 * NS_PER_S


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is a round of its own."""
    monkeypatch.setattr(exchange, "ROUND_S", 0.0)


def place_of(tmp_path: Path) -> Path:
    return directory_of(tmp_path, KEY)


def make_inbox(tmp_path: Path) -> Inbox:
    return Inbox(place_of(tmp_path), 16)


def make_outbox(tmp_path: Path, name: int = 8) -> Outbox:
    return Outbox(place_of(tmp_path), str(name))


def token_of(outbox: Outbox) -> str:
    beacon = outbox.beacon()
    assert beacon is not None
    return beacon.token


def make_block(rank: int, number: int) -> Block:
    return Block(rank, 5 * number + 1, 5 * number + 4, 4, 100, None, None, None, None, None, None, None, None)


def line(item: RankItem) -> bytes:
    return dump(encode_item(item)).encode()


def make_report(
    token: str,
    *items: RankItem,
    first_item: int = 0,
    gone: list[Gone] | None = None,
    collector: str = "one",
) -> NodeReport:
    return NodeReport(
        token,
        [make_identity(8), make_identity(9)],
        gone or [],
        [("9", "a note")],
        first_item,
        [*map(line, items)],
        collector,
    )


def report(token: str, *items: RankItem, **changes: Any) -> bytes:
    return make_report(token, *items, **changes).encode()


def files(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in place_of(tmp_path).iterdir())


def test_a_node_s_report_comes_back_as_it_was() -> None:
    made = make_report("token", make_block(8, 0), make_block(9, 0), gone=[Gone("9", 4, "it has died")])
    assert NodeReport.decode(made.encode()) == made


def test_the_directory_is_called_after_the_job(tmp_path: Path) -> None:
    assert place_of(tmp_path) == tmp_path / f".ranks_{KEY}"


def test_items_arrive_once_each(tmp_path: Path) -> None:
    outbox = make_outbox(tmp_path)
    assert outbox.beacon() is None
    inbox = make_inbox(tmp_path)
    token = token_of(outbox)
    outbox.write(report(token, make_block(8, 0), make_block(9, 0)))
    received = inbox.look(LONG_NS)
    assert received.items == [make_block(8, 0), make_block(9, 0)]
    assert [(each.owners, each.notes) for each in received.reports] == [
        ([make_identity(8), make_identity(9)], [("9", "a note")])
    ]
    assert inbox.look(LONG_NS) == Received(), "nothing has changed"
    outbox.write(report(token, make_block(9, 0), make_block(8, 1), first_item=1))
    assert inbox.look(LONG_NS).items == [make_block(8, 1)]
    outbox.write(report(token, make_block(9, 7), first_item=20))
    received = inbox.look(LONG_NS)
    assert received.items == [make_block(9, 7)], "what was forgotten before it was read is lost, not the rest"
    assert received.complaints == ["17 blocks were gone before they were read, and perhaps more later"]
    outbox.write(report(token, make_block(9, 9), first_item=30))
    assert inbox.look(LONG_NS).complaints == [], "said once"
    assert files(tmp_path) == [BEACON, "node_8.json"]


def test_a_report_to_somebody_else_is_not_taken(tmp_path: Path) -> None:
    outbox = make_outbox(tmp_path)
    make_inbox(tmp_path)
    old = token_of(outbox)
    outbox.write(report(old, make_block(8, 0)))
    inbox = make_inbox(tmp_path)
    assert inbox.look(LONG_NS) == Received()
    new = token_of(outbox)
    outbox.write(report(new, make_block(8, 0)))
    assert inbox.look(LONG_NS).items == [make_block(8, 0)]


def test_reading_stops_when_its_time_is_over_and_goes_on_later(tmp_path: Path) -> None:
    inbox = make_inbox(tmp_path)
    outboxes = [make_outbox(tmp_path, rank) for rank in (8, 9)]
    token = token_of(outboxes[0])
    outboxes[0].write(report(token, make_block(8, 0)))
    outboxes[1].write(report(token, make_block(9, 0)))
    assert [inbox.look(0).items, inbox.look(0).items] == [[make_block(8, 0)], [make_block(9, 0)]]


def test_the_directory_goes_at_the_end(tmp_path: Path) -> None:
    inbox, outbox = make_inbox(tmp_path), make_outbox(tmp_path)
    token = token_of(outbox)
    outbox.write(report(token, make_block(8, 0)))
    (place_of(tmp_path) / ".node_9.json.tmp").write_text("of a collector that was killed")
    assert inbox.close(LONG_NS).items == [make_block(8, 0)]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        outbox.write(report(token))
    assert list(tmp_path.iterdir()) == []


def test_the_collector_clears_up_what_it_wrote_too_late(tmp_path: Path) -> None:
    outbox = make_outbox(tmp_path)
    make_inbox(tmp_path)
    outbox.write(report("late"))
    outbox.leave()
    assert files(tmp_path) == [BEACON, "node_8.json"], "whoever gathers is still there"
    (place_of(tmp_path) / BEACON).unlink()
    outbox.leave()
    assert list(tmp_path.iterdir()) == []


def test_the_directory_of_a_successor_stays(tmp_path: Path) -> None:
    first = make_inbox(tmp_path)
    make_inbox(tmp_path)
    first.close(LONG_NS)
    assert files(tmp_path) == [BEACON]


ABOUT = {
    "owners": [content_of(make_identity(8))],
    "gone": [],
    "notes": [],
    "first_item": 0,
    "collector": "one",
}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "Expecting value"),
        (b"\xff\n", "utf-8"),
        (b"[]\n", "no JSON object"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 6000, "digits"),
        (b" " * (exchange.MAX_NODE_BYTES + 1), "longer than"),
        ({"owners": None}, "no list"),
        ({"owners": [{}]}, "no identity of a rank"),
        ({"owners": 8}, "no list"),
        ({"notes": [["../8", "x"]]}, "no name"),
        ({"gone": [[1]]}, "unpack"),
        ({"gone": [["8", -1, "x"]]}, "no number"),
        ({"notes": [["8", 8]]}, "no text"),
        ({"notes": [[8, "x"]]}, "no text"),
        ({"notes": 7}, "no list"),
        ({"first_item": None}, "no number"),
        ({"token": 1}, "no text"),
        ({"collector": 1}, "no text"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, content: bytes | dict, why: str) -> None:
    inbox = make_inbox(tmp_path)
    if isinstance(content, dict):
        content = json.dumps({"token": inbox._token} | ABOUT | content).encode() + b"\n"
    (place_of(tmp_path) / "node_8.json").write_bytes(content)
    received = inbox.look(LONG_NS)
    assert (received.reports, received.items) == ([], [])
    assert len(received.complaints) == 1
    assert received.complaints[0].startswith("node_8.json: ")
    assert why in received.complaints[0]
    (place_of(tmp_path) / "node_8.json").write_bytes(content + b" ")
    assert inbox.look(LONG_NS).complaints == [], "said once"


def test_the_good_items_before_a_bad_one_are_kept(tmp_path: Path) -> None:
    inbox = make_inbox(tmp_path)
    content = [
        json.dumps({"token": inbox._token} | ABOUT).encode(),
        line(make_block(8, 0)),
        line(make_block(1, 0)),
        b"",
    ]
    (place_of(tmp_path) / "node_8.json").write_bytes(b"\n".join(content))
    received = inbox.look(LONG_NS)
    assert (received.items, received.complaints) == (
        [make_block(8, 0)],
        ["node_8.json: a block of rank 1, which is none of the node's"],
    )


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    inbox = make_inbox(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("{}")
    os.symlink(secret, place_of(tmp_path) / "node_8.json")
    os.mkfifo(place_of(tmp_path) / "node_9.json")
    received = inbox.look(LONG_NS)
    assert sorted(complaint.split(": ")[0] for complaint in received.complaints) == [
        "node_8.json",
        "node_9.json",
    ]
    make_outbox(tmp_path).write(report("x"))
    assert secret.read_text() == "{}", "the link was replaced, not followed"


def test_a_link_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", place_of(tmp_path))
    with pytest.raises(OSError, match="directory|symbolic"):
        make_inbox(tmp_path)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_killed_jobs_left_goes_by_its_age(tmp_path: Path) -> None:
    for name, age_s in (
        (".ranks_" + "a" * 16, 2 * exchange.ABANDONED_S),
        (".ranks_" + "b" * 16, 0),
        (".ranks_mine", 9e9),
    ):
        (tmp_path / name).mkdir()
        for file in (BEACON, "node_0.json"):
            (tmp_path / name / file).write_text("{}")
            os.utime(tmp_path / name / file, (1, 1))
        os.utime(tmp_path / name / BEACON, None if not age_s else (1, 1))
        os.utime(tmp_path / name, (1, 1))
    prune(place_of(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".ranks_" + "b" * 16, ".ranks_mine"]


def test_what_somebody_removes_is_made_again_and_nothing_is_taken_twice(tmp_path: Path) -> None:
    inbox, outbox = make_inbox(tmp_path), make_outbox(tmp_path)
    token = token_of(outbox)
    outbox.write(report(token, make_block(8, 0)))
    assert inbox.look(LONG_NS).items == [make_block(8, 0)]
    shutil.rmtree(place_of(tmp_path))
    assert inbox.look(LONG_NS) == Received()
    assert token_of(outbox) == token
    outbox.write(report(token, make_block(8, 0), make_block(8, 1)))
    assert inbox.look(LONG_NS).items == [make_block(8, 1)]
    (place_of(tmp_path) / BEACON).write_text("damaged")
    inbox.look(LONG_NS)
    assert token_of(outbox) == token


@pytest.mark.parametrize(
    "damage", [lambda beacon: beacon.write_bytes(b"[]"), lambda beacon: (beacon.unlink(), beacon.mkdir())]
)
def test_a_damaged_beacon_costs_nothing_of_the_last_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable
) -> None:
    inbox, outbox = make_inbox(tmp_path), make_outbox(tmp_path)
    outbox.write(report(inbox._token, make_block(8, 0)))
    monkeypatch.setattr(inbox, "_has_beacon", lambda: True)  # it is damaged just after that was asked
    damage(place_of(tmp_path) / BEACON)
    assert inbox.close(LONG_NS).items == [make_block(8, 0)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_successor_s_items_are_all_new_however_many(tmp_path: Path, count: int) -> None:
    inbox, outbox = make_inbox(tmp_path), make_outbox(tmp_path)
    outbox.write(report(inbox._token, make_block(8, 0), make_block(9, 0)))
    inbox.look(LONG_NS)
    items = [make_block(8, 1), make_block(9, 1), make_block(8, 2)][:count]
    outbox.write(report(inbox._token, *items, collector="its successor"))
    sent = [("node0", [*map(line, items)])]
    about = [make_report(inbox._token, collector="its successor")]
    assert inbox.look(LONG_NS) == Received(about, items, sent)
    assert inbox.look(LONG_NS) == Received()


def test_a_directory_in_the_place_of_a_file_takes_no_descriptors(tmp_path: Path) -> None:
    inbox, outbox = make_inbox(tmp_path), make_outbox(tmp_path)
    (place_of(tmp_path) / "node_8.json").mkdir()
    assert inbox.look(LONG_NS).complaints == ["node_8.json: no regular file"]
    (place_of(tmp_path) / BEACON).unlink()
    (place_of(tmp_path) / BEACON).mkdir()
    before = len(os.listdir("/proc/self/fd"))
    assert [outbox.beacon() for _ in range(3)] == [None] * 3
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_request_reaches_every_collector_until_the_end(tmp_path: Path) -> None:
    inbox, outbox = make_inbox(tmp_path), make_outbox(tmp_path)
    token = token_of(outbox)
    assert outbox.beacon() == (token, None)
    inbox.request({"more": 3})
    assert outbox.beacon() == (token, {"more": 3})
    (place_of(tmp_path) / BEACON).unlink()
    inbox.look(LONG_NS)
    assert outbox.beacon() == (token, {"more": 3}), "made again"


@pytest.mark.parametrize("name", ["", "a b", "../a", "a" * 65, "a.b", "1\n"])
def test_names_are_safe_in_paths(name: str) -> None:
    for good in ("0", "worker-3", "a_b"):
        assert NodeReport.decode(about(good)).notes == [(good, "hot")]
    with pytest.raises(ValueError, match="no name where one belongs"):
        NodeReport.decode(about(name))


def about(name: str) -> bytes:
    return NodeReport("a token", [make_identity()], [], [(name, "hot")], 0).encode()
