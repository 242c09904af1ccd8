"""The files between nodes: what is told arrives once, and nothing planted or damaged is believed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.training.ranks import exchange
from flagscale_perf.training.ranks.blocks import Block, encode_block
from flagscale_perf.training.ranks.exchange import (
    BEACON,
    Heard,
    Inbox,
    NodeReport,
    Outbox,
    directory_name,
    prune,
)
from flagscale_perf.training.ranks.identity import content_of
from flagscale_perf.training.ranks.node import Gone
from tests.fakes import make_identity

KEY = "0123456789abcdef"
LONG_NS = 60 * NS_PER_S


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is a round of its own."""
    monkeypatch.setattr(exchange, "ROUND_S", 0.0)


def make_block(rank: int, number: int) -> Block:
    return Block(rank, 5 * number + 1, 5 * number + 4, 4, 2, 100, None, None, None, None, None, None)


def line(block: Block) -> bytes:
    return dump(encode_block(block)).encode()


def report(token: str, *blocks: Block, first_block: int = 0, gone: list[Gone] | None = None) -> NodeReport:
    return NodeReport(
        token,
        [make_identity(8), make_identity(9)],
        gone or [],
        [(9, "a note")],
        first_block,
        [*map(line, blocks)],
    )


def files(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / directory_name(KEY)).iterdir())


def test_a_node_s_report_comes_back_as_it_was() -> None:
    told = report("token", make_block(8, 0), make_block(9, 0), gone=[Gone(9, 4, "it has died")])
    assert NodeReport.decode(told.encode()) == told


def test_blocks_arrive_once_each(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, KEY, 8)
    assert outbox.token() is None
    inbox = Inbox(tmp_path, KEY, 16)
    token = outbox.token()
    assert token is not None
    outbox.write(report(token, make_block(8, 0), make_block(9, 0)))
    heard = inbox.look(LONG_NS)
    assert heard.blocks == [make_block(8, 0), make_block(9, 0)]
    assert [(told.identities, told.notes) for told in heard.reports] == [
        ([make_identity(8), make_identity(9)], [(9, "a note")])
    ]
    assert inbox.look(LONG_NS) == Heard(), "nothing has changed"
    outbox.write(report(token, make_block(9, 0), make_block(8, 1), first_block=1))
    assert inbox.look(LONG_NS).blocks == [make_block(8, 1)]
    outbox.write(report(token, make_block(9, 7), first_block=20))
    heard = inbox.look(LONG_NS)
    assert heard.blocks == [make_block(9, 7)], "what was forgotten before it was read is lost, not the rest"
    assert heard.complaints == ["17 blocks were gone before they were read, and perhaps more later"]
    outbox.write(report(token, make_block(9, 9), first_block=30))
    assert inbox.look(LONG_NS).complaints == [], "said once"
    assert files(tmp_path) == [BEACON, "node_8.json"]


def test_a_report_to_somebody_else_is_not_heard(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, KEY, 8)
    Inbox(tmp_path, KEY, 16)
    old = outbox.token()
    assert old is not None
    outbox.write(report(old, make_block(8, 0)))
    inbox = Inbox(tmp_path, KEY, 16)
    assert inbox.look(LONG_NS) == Heard()
    new = outbox.token()
    assert new is not None
    outbox.write(report(new, make_block(8, 0)))
    assert inbox.look(LONG_NS).blocks == [make_block(8, 0)]


def test_reading_stops_when_its_time_is_over_and_goes_on_later(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, KEY, 16)
    outboxes = [Outbox(tmp_path, KEY, rank) for rank in (8, 9)]
    token = outboxes[0].token()
    assert token is not None
    outboxes[0].write(report(token, make_block(8, 0)))
    outboxes[1].write(report(token, make_block(9, 0)))
    assert [inbox.look(0).blocks, inbox.look(0).blocks] == [[make_block(8, 0)], [make_block(9, 0)]]


def test_the_directory_goes_at_the_end(tmp_path: Path) -> None:
    inbox, outbox = Inbox(tmp_path, KEY, 16), Outbox(tmp_path, KEY, 8)
    token = outbox.token()
    assert token is not None
    outbox.write(report(token, make_block(8, 0)))
    (tmp_path / directory_name(KEY) / "node_9.json.tmp").write_text("of a collector that was killed")
    assert inbox.close(LONG_NS).blocks == [make_block(8, 0)]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        outbox.write(report(token))
    assert list(tmp_path.iterdir()) == []


def test_the_collector_clears_up_what_it_wrote_too_late(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, KEY, 8)
    Inbox(tmp_path, KEY, 16)
    outbox.write(report("late"))
    outbox.leave()
    assert files(tmp_path) == [BEACON, "node_8.json"], "rank 0 is still there"
    (tmp_path / directory_name(KEY) / BEACON).unlink()
    outbox.leave()
    assert list(tmp_path.iterdir()) == []


def test_the_directory_of_a_successor_stays(tmp_path: Path) -> None:
    first = Inbox(tmp_path, KEY, 16)
    Inbox(tmp_path, KEY, 16)
    first.close(LONG_NS)
    assert files(tmp_path) == [BEACON]


IDENTITY = content_of(make_identity(8))
ABOUT = {"ranks": [IDENTITY], "gone": [], "notes": [], "first_block": 0}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "Expecting value"), (b"\xff\n", "utf-8"), (b"[]\n", "no JSON object"), (b"[" * 100_000, "nested too deeply"),
        (b"9" * 6000, "digits"), (b" " * (exchange.MAX_NODE_BYTES + 1), "longer than"),
        ({"ranks": None}, "no list"), ({"ranks": [{}]}, "no identity"), ({"ranks": [IDENTITY | {"rank": -1}]}, "rank of a rank"),
        ({"gone": [[1]]}, "unpack"), ({"gone": [[8, -1, "x"]]}, "no number"), ({"notes": [[8, 8]]}, "no text"), ({"notes": 7}, "no list"),
        ({"first_block": None}, "no number"), ({"token": 1}, "no text"),
    ],
)  # fmt: skip
def test_what_is_no_report_is_refused(tmp_path: Path, content: bytes | dict, why: str) -> None:
    inbox = Inbox(tmp_path, KEY, 16)
    if isinstance(content, dict):
        content = json.dumps({"token": inbox._token} | ABOUT | content).encode() + b"\n"
    (tmp_path / directory_name(KEY) / "node_8.json").write_bytes(content)
    heard = inbox.look(LONG_NS)
    assert (heard.reports, heard.blocks) == ([], [])
    assert len(heard.complaints) == 1
    assert heard.complaints[0].startswith("node_8.json: ")
    assert why in heard.complaints[0]
    (tmp_path / directory_name(KEY) / "node_8.json").write_bytes(content + b" ")
    assert inbox.look(LONG_NS).complaints == [], "said once"


def test_the_good_blocks_before_a_bad_one_are_kept(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, KEY, 16)
    content = [
        json.dumps({"token": inbox._token} | ABOUT).encode(),
        line(make_block(8, 0)),
        line(make_block(1, 0)),
        b"",
    ]
    (tmp_path / directory_name(KEY) / "node_8.json").write_bytes(b"\n".join(content))
    heard = inbox.look(LONG_NS)
    assert (heard.blocks, heard.complaints) == (
        [make_block(8, 0)],
        ["node_8.json: a block of rank 1, which is none of the node's"],
    )


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, KEY, 16)
    secret = tmp_path / "secret"
    secret.write_text("{}")
    os.symlink(secret, tmp_path / directory_name(KEY) / "node_8.json")
    os.mkfifo(tmp_path / directory_name(KEY) / "node_9.json")
    heard = inbox.look(LONG_NS)
    assert sorted(complaint.split(": ")[0] for complaint in heard.complaints) == [
        "node_8.json",
        "node_9.json",
    ]
    Outbox(tmp_path, KEY, 8).write(report("x"))
    assert secret.read_text() == "{}", "the link was replaced, not followed"


def test_a_link_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / directory_name(KEY))
    with pytest.raises(OSError, match="directory|symbolic"):
        Inbox(tmp_path, KEY, 16)
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
    prune(tmp_path, keep="")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".ranks_" + "b" * 16, ".ranks_mine"]


def test_what_somebody_removes_is_made_again_and_nothing_is_heard_twice(tmp_path: Path) -> None:
    inbox, outbox = Inbox(tmp_path, KEY, 16), Outbox(tmp_path, KEY, 8)
    token = outbox.token()
    assert token is not None
    outbox.write(report(token, make_block(8, 0)))
    assert inbox.look(LONG_NS).blocks == [make_block(8, 0)]
    shutil.rmtree(tmp_path / directory_name(KEY))
    assert inbox.look(LONG_NS) == Heard()
    assert outbox.token() == token
    outbox.write(report(token, make_block(8, 0), make_block(8, 1)))
    assert inbox.look(LONG_NS).blocks == [make_block(8, 1)]
    (tmp_path / directory_name(KEY) / BEACON).write_text("damaged")
    inbox.look(LONG_NS)
    assert outbox.token() == token


@pytest.mark.parametrize(
    "damage", [lambda beacon: beacon.write_bytes(b"[]"), lambda beacon: (beacon.unlink(), beacon.mkdir())]
)
def test_a_damaged_beacon_costs_nothing_of_the_last_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable
) -> None:
    inbox, outbox = Inbox(tmp_path, KEY, 16), Outbox(tmp_path, KEY, 8)
    outbox.write(report(inbox._token, make_block(8, 0)))
    monkeypatch.setattr(inbox, "_has_beacon", lambda: True)  # it is damaged just after that was asked
    damage(tmp_path / directory_name(KEY) / BEACON)
    assert inbox.close(LONG_NS).blocks == [make_block(8, 0)]


def test_a_collector_that_counts_anew_is_heard(tmp_path: Path) -> None:
    inbox, outbox = Inbox(tmp_path, KEY, 16), Outbox(tmp_path, KEY, 8)
    outbox.write(report(inbox._token, make_block(8, 0), make_block(9, 0), first_block=(1 << 53) - 1))
    inbox.look(LONG_NS)
    outbox.write(report(inbox._token, make_block(8, 1)))
    assert inbox.look(LONG_NS).blocks == [make_block(8, 1)]
    assert inbox.look(LONG_NS) == Heard()


def test_a_directory_in_the_place_of_a_file_takes_no_descriptors(tmp_path: Path) -> None:
    inbox, outbox = Inbox(tmp_path, KEY, 16), Outbox(tmp_path, KEY, 8)
    (tmp_path / directory_name(KEY) / "node_8.json").mkdir()
    assert inbox.look(LONG_NS).complaints == ["node_8.json: no regular file"]
    (tmp_path / directory_name(KEY) / BEACON).unlink()
    (tmp_path / directory_name(KEY) / BEACON).mkdir()
    before = len(os.listdir("/proc/self/fd"))
    assert [outbox.token() for _ in range(3)] == [None] * 3
    assert len(os.listdir("/proc/self/fd")) == before
