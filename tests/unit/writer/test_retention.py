"""Old sessions go; nothing else ever does."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.spine.files import open_locked
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.spine.session import file_names, ranks_name
from flagscale_perf.writer.retention import prune
from tests.fakes import SECOND, make_header, make_step

OLD, MIDDLE, NEW = "20240101_000000", "20240101_000000_2", "20240102_000000"


def make_session(directory: Path, session_id: str, *extra: str) -> None:
    names = file_names(session_id)
    (directory / names["records"]).write_bytes(encode(make_header(session_id)) + encode(make_step(1)))
    for name in (names["metrics"], names["summary"], *extra):
        (directory / name).write_text("x")


def make_pair(directory: Path, number: int) -> tuple[str, str]:
    """A training of an hour, and the profile of it that began 3 s later; their names are out of order."""
    found = []
    for later_s, instrument in ((0, "training"), (3, "profile")):
        start_s = 1_700_000_000 + 10_000 * number + later_s
        session_id = f"202401{30 - number:02d}_00000{later_s}"
        header = replace(make_header(session_id), instrument=instrument, start_wall_ns=start_s * SECOND)
        path = directory / file_names(session_id)["records"]
        path.write_bytes(encode(header))
        os.utime(path, (start_s, start_s + 3600 - later_s))
        found.append(session_id)
    return found[0], found[1]


def test_trainings_are_counted_and_a_profile_goes_with_its_training(tmp_path: Path) -> None:
    pairs = [make_pair(tmp_path, number) for number in range(10)]
    assert prune(tmp_path, keep=10) == []
    alone, _ = make_pair(tmp_path, 11)  # another program's calls, beside no training: counted by themselves
    path = tmp_path / file_names(alone)["records"]
    path.write_bytes(path.read_bytes().replace(b'"instrument":"training"', b'"instrument":"rpc"'))
    assert prune(tmp_path, keep=10) == []
    assert prune(tmp_path, keep=7) == [each for pair in pairs[2::-1] for each in reversed(pair)]


def test_a_training_in_use_keeps_its_profile(tmp_path: Path) -> None:
    pairs = [make_pair(tmp_path, number) for number in range(3)]
    held = open_locked(tmp_path / file_names(pairs[0][0])["records"])
    os.utime(tmp_path / file_names(pairs[0][0])["records"])
    assert prune(tmp_path, keep=1) == list(reversed(pairs[1]))
    os.close(held)


def test_the_newest_by_the_clock_stays_whatever_its_name(tmp_path: Path) -> None:
    for session_id, start_s in (("20261128_104548", 1000), ("20261128_024618", 1030)):
        header = replace(make_header(session_id), start_wall_ns=start_s * SECOND)
        (tmp_path / file_names(session_id)["records"]).write_bytes(encode(header))
    assert prune(tmp_path, keep=1) == ["20261128_104548"]


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.fixture
def three(tmp_path: Path) -> Path:
    views = ("metrics_{}.1.log", "metrics_{}.2.log", "intervals_{}.csv", "report_{}.html")
    make_session(tmp_path, OLD, *(f"perf_{view.format(OLD)}" for view in views))
    make_session(tmp_path, MIDDLE)
    make_session(tmp_path, NEW)
    (tmp_path / "perf_realtime.log").write_text("x")
    return tmp_path


def test_the_newest_sessions_stay_whole_and_the_others_go_whole(three: Path) -> None:
    assert prune(three, keep=1) == [MIDDLE, OLD]
    assert names_in(three) == {
        file_names(NEW)[kind] for kind in ("records", "metrics", "summary", "realtime")
    }


def test_enough_room_removes_nothing(three: Path) -> None:
    before = names_in(three)
    assert prune(three, keep=3) == []
    assert names_in(three) == before


def test_files_of_columns_go_with_the_run_file_that_names_them(three: Path) -> None:
    for name in ("perf_calls_a_1_2_1.npz", "perf_calls_b_1_2_1.npz", "other.npz"):
        (three / name).write_text("x")
    with (three / file_names(OLD)["records"]).open("ab") as file:
        file.write(encode(NameRecord(1, 1, "perf_calls_a_1_2_1.npz")) + encode(NameRecord(1, 2, "other.npz")))
        file.write(encode(NameRecord(1, 3, "../perf_calls_b_1_2_1.npz")))
    prune(three, keep=1)
    assert {name for name in names_in(three) if name.endswith(".npz")} == {
        "perf_calls_b_1_2_1.npz",
        "other.npz",
    }


def test_a_session_in_use_stays(three: Path) -> None:
    held = open_locked(three / file_names(OLD)["records"])
    assert prune(three, keep=1) == [MIDDLE]
    os.close(held)
    assert file_names(OLD)["metrics"] in names_in(three)
    assert prune(three, keep=1) == [OLD]


def test_where_nobody_can_lock_nothing_is_removed(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flagscale_perf.writer.retention.lock", lambda fd: False)
    before = names_in(three)
    assert prune(three, keep=1) == []
    assert names_in(three) == before


STRANGERS = [
    "perf_metrics_notes.log",
    f"perf_metrics_{OLD}.log.bak",
    f"perf_metrics_{OLD}_3.log",
    f"perf_metrics_{OLD}.4.log",  # no part 3 before it: not a part of ours
    f"perf_summary_{OLD}.json.gz",
    "perf_records_20230101_000000.jsonl",  # named like ours, but no header in it
    "perf_records_20230101_000001.jsonl",  # another session's header
    "notes.txt",
]


def test_files_that_are_not_ours_stay(three: Path) -> None:
    for name in STRANGERS:
        (three / name).write_text("precious\n")
    (three / "perf_records_20230101_000001.jsonl").write_bytes(encode(make_header("20230101_000002")))
    (three / "perf_summary_20230101_000000.json").write_text("theirs")
    (three / f"perf_metrics_{OLD}.log").unlink()
    (three / f"perf_metrics_{OLD}.log").mkdir()
    assert prune(three, keep=1) == [MIDDLE, OLD]
    kept = {*STRANGERS, "perf_summary_20230101_000000.json", f"perf_metrics_{OLD}.log"}
    assert names_in(three) == kept | {
        file_names(NEW)[kind] for kind in ("records", "metrics", "summary", "realtime")
    }


def test_links_are_neither_followed_nor_removed(
    three: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    make_session(elsewhere, "20220101_000000")
    for name in names_in(elsewhere):
        (three / name).symlink_to(elsewhere / name)
    (three / f"perf_summary_{OLD}.json").unlink()
    (three / f"perf_summary_{OLD}.json").symlink_to(elsewhere / "perf_summary_20220101_000000.json")
    before = names_in(elsewhere)
    assert prune(three, keep=1) == [MIDDLE, OLD]
    assert names_in(elsewhere) == before
    assert {*before, f"perf_summary_{OLD}.json"} <= names_in(three)


def test_fifos_with_our_names_do_not_stop_it(three: Path) -> None:
    os.mkfifo(three / "perf_records_20230101_000000.jsonl")
    assert prune(three, keep=1) == [MIDDLE, OLD]
    assert "perf_records_20230101_000000.jsonl" in names_in(three)


def test_what_every_rank_has_sent_goes_with_its_session(tmp_path: Path) -> None:
    for session_id, start_s in (("20261128_104548", 1000), ("20261128_104618", 1030)):
        header = replace(make_header(session_id), start_wall_ns=start_s * SECOND)
        (tmp_path / file_names(session_id)["records"]).write_bytes(encode(header))
        for part in (3, 4, 10):
            (tmp_path / ranks_name(header.start_wall_ns, part)).write_text("x")
        table = f"part=perf_ranks_{header.start_wall_ns}.3-0123abcd-0123456789abcdef.parquet"
        kept = tmp_path / "cache/kind=every_rank/host=node0" / table
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.touch()
    (tmp_path / ranks_name(1000 * SECOND, 5)).symlink_to(tmp_path / "elsewhere")
    (tmp_path / f"perf_ranks_{1000 * SECOND}.3.jsonl.bak").touch()
    assert prune(tmp_path, keep=1) == ["20261128_104548"]
    left = {
        file_names("20261128_104618")["records"],
        *(ranks_name(1030 * SECOND, part) for part in (3, 4, 10)),
    }
    assert names_in(tmp_path) == {
        *left,
        ranks_name(1000 * SECOND, 5),
        f"perf_ranks_{1000 * SECOND}.3.jsonl.bak",
        "cache",
    }
    assert list((tmp_path / "cache").rglob("*.parquet")) == [kept]


def test_what_readers_keep_goes_with_its_session_and_no_link_is_followed(three: Path, tmp_path: Path) -> None:
    kept = {
        session_id: [
            f"cache/kind=step/host=node0/part={session_id}-0123abcd-01234567.parquet",
            f"cache/kind=run/host=node0/part={session_id}-0123abcd-01234567-89abcdef.parquet",
            f"cache/parts/{session_id}.json",
            f"cache/{file_names(session_id)['records']}.RunFold.state",
        ]
        for session_id in (OLD, MIDDLE, NEW)
    }
    for name in (each for names in kept.values() for each in names):
        (three / name).parent.mkdir(parents=True, exist_ok=True)
        (three / name).touch()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / f"{OLD}.json").touch()
    (three / "cache/linked").symlink_to(elsewhere)
    assert prune(three, keep=2) == [OLD]
    assert {name: (three / name).exists() for name in kept[OLD]} == dict.fromkeys(kept[OLD], False)
    assert all((three / name).exists() for name in kept[MIDDLE] + kept[NEW])
    assert (elsewhere / f"{OLD}.json").exists()
