"""Every rank's blocks kept as they were sent: within their limit, and whatever the disk does."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from flagscale_perf.spine import files
from flagscale_perf.spine.session import ranks_name, ranks_parts
from flagscale_perf.training.ranks.kept import BYTES_PER_GB, MAX_WAITING_BYTES, PARTS, KeptBlocks, kept_bytes
from tests.unit.training.ranks.test_exchange import line, make_block

START_NS = 1_706_524_200_000_000_000
MANY = 10**9


def lines_in(directory: Path) -> list[bytes]:
    parts = ranks_parts(directory, START_NS)
    return [
        line
        for part in parts
        for line in (directory / ranks_name(START_NS, part)).read_bytes().splitlines()
        if line
    ]


def ranks_in(directory: Path) -> list[int]:
    return [block[1] for each in lines_in(directory) for block in json.loads(each)["blocks"]]


def test_what_is_kept_without_the_option_costs_a_small_job_nothing() -> None:
    assert [kept_bytes(None, 256), kept_bytes(None, 257)] == [0, 4 * BYTES_PER_GB]
    assert [kept_bytes(0, 10_000), kept_bytes(50, 2)] == [0, 50 * BYTES_PER_GB]


def test_blocks_of_other_nodes_and_of_this_one(tmp_path: Path) -> None:
    kept = KeptBlocks(tmp_path, START_NS, MANY)
    kept.add("node1", [line(make_block(8, 3)), line(make_block(9, 3))])
    kept.add_items([make_block(1, 3)])
    kept.add("node2", [])
    assert kept.close() == []
    other, own = map(json.loads, lines_in(tmp_path))
    assert (other["node"], [block[1] for block in other["blocks"]]) == ("node1", [8, 9])
    assert (own["node"], [block[1] for block in own["blocks"]]) == (os.uname().nodename, [1])


def test_nothing_is_made_where_nothing_is_to_be_kept(tmp_path: Path) -> None:
    kept = KeptBlocks(tmp_path, START_NS, 0)
    kept.add("node1", [line(make_block(8, 3))])
    kept.add_items([make_block(1, 3)])
    assert [*kept.flush(), *kept.close(), *tmp_path.iterdir()] == []


def test_the_oldest_go_for_new_ones_and_that_is_said_once(tmp_path: Path) -> None:
    kept, notes = KeptBlocks(tmp_path, START_NS, PARTS * 400), []
    for rank in range(100):
        kept.add("node1", [line(make_block(rank, 3))])
        notes += kept.flush()
    assert len(notes) == 1 and "the oldest go for new ones (--perf-ranks-gb keeps more)" in notes[0]
    parts = ranks_parts(tmp_path, START_NS)
    assert parts == list(range(parts[0], parts[0] + len(parts))) and len(parts) in (PARTS - 1, PARTS)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert size <= PARTS * 400 + PARTS * 200, "a line more in each part"
    ranks = ranks_in(tmp_path)
    assert ranks == list(range(ranks[0], 100)) and ranks[0] > 0


def test_another_writer_goes_on_behind_a_torn_line(tmp_path: Path) -> None:
    first = KeptBlocks(tmp_path, START_NS, MANY)
    first.add("node1", [line(make_block(8, 3))])
    first.close()
    path = tmp_path / ranks_name(START_NS, 0)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:50])
    second = KeptBlocks(tmp_path, START_NS, MANY)
    second.add("node1", [line(make_block(9, 3))])
    second.close()
    torn, *_ = path.read_bytes()[len(whole) :].splitlines()
    assert path.read_bytes().startswith(whole) and torn == whole[:50]
    assert path.read_bytes()[len(whole) + 50 :].startswith(b'\n{"kept_wall_ns"')


def test_a_full_disk_is_told_and_its_blocks_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    kept = KeptBlocks(tmp_path, START_NS, MANY)
    monkeypatch.setattr(files.os, "write", full)
    big = b"[" + b"0," * (MAX_WAITING_BYTES // 2) + b"0]"
    kept.add("node1", [big])
    said = "every rank's blocks cannot be written: OSError: No space left on device; retrying"
    assert (kept.flush(), kept.flush()) == ([said], [])
    kept.add("node1", [line(make_block(8, 3))] * 3)
    assert kept.close() == ["4 blocks of ranks were not kept: OSError: No space left on device"]


def test_what_waits_for_the_disk_is_kept_when_it_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KeptBlocks(tmp_path, START_NS, MANY)
    kept.add("node1", [line(make_block(8, 3))])
    with monkeypatch.context() as broken:
        broken.setattr(
            files.os, "open", lambda *_, **__: (_ for _ in ()).throw(PermissionError(13, "denied"))
        )
        assert kept.flush() == ["every rank's blocks cannot be written: PermissionError: denied; retrying"]
    assert kept.close() == []
    assert ranks_in(tmp_path) == [8]


def test_a_link_in_its_place_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "other"
    target.write_bytes(b"")
    (tmp_path / ranks_name(START_NS, 0)).symlink_to(target)
    kept = KeptBlocks(tmp_path, START_NS, MANY)
    kept.add("node1", [line(make_block(8, 3))])
    assert kept.close()[-1].startswith("1 blocks of ranks were not kept: OSError: ")
    assert target.read_bytes() == b""


def test_nothing_more_is_kept_while_the_oldest_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path) -> None:
        raise PermissionError(errno.EPERM, "not permitted")

    monkeypatch.setattr(os, "unlink", refused)
    kept = KeptBlocks(tmp_path, START_NS, PARTS * 400)
    for rank in range(100):
        kept.add("node1", [line(make_block(rank, 3))])
        kept.flush()
    (lost,) = kept.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= PARTS * 400 + PARTS * 200
    assert lost.startswith(f"{100 - len(ranks_in(tmp_path))} blocks of ranks were not kept: PermissionError")


def test_more_than_may_wait_is_kept_where_the_disk_takes_it(tmp_path: Path) -> None:
    kept, some = KeptBlocks(tmp_path, START_NS, MANY), [line(make_block(8, 3))] * 10_000
    for _ in range(2 * MAX_WAITING_BYTES // sum(map(len, some)) + 1):
        kept.add("node1", some)
    assert kept.close() == []
    assert (tmp_path / ranks_name(START_NS, 0)).stat().st_size > 2 * MAX_WAITING_BYTES
