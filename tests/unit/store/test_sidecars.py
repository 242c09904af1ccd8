"""Tables of the files beside a run file that have what every rank has sent: what is in them is what these
files have now, however they grow, rotate, are damaged and go.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf import open_run
from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.lake import ask, seal_all, write_tables
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.session import ranks_name
from flagscale_perf.store import cache
from flagscale_perf.training.analysis.every_rank import COLUMNS, EveryRank
from flagscale_perf.training.ranks.kept import PARTS, KeptBlocks
from tests.fakes import make_header, make_step
from tests.unit.training.ranks.test_exchange import line, make_block

pytest.importorskip("duckdb")
pq = pytest.importorskip("pyarrow.parquet")
NAME = "perf_records_20240129_103000.jsonl"
START_NS = make_header().start_wall_ns
ROWS = f"select {', '.join(COLUMNS)} from every_rank order by all"


@pytest.fixture(autouse=True)
def old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("flagscale_perf.spine.files.TICK_NS", 0)  # else times of a new file prove nothing


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / NAME).write_bytes(b"".join(map(encode, [make_header(), *map(make_step, range(5))])))
    return tmp_path / "run"


def add(run: Path, part_bytes: int, *numbers: int) -> None:
    """Blocks of these numbers from two ranks, by one more writer, in parts of so many bytes."""
    kept = KeptBlocks(run, START_NS, PARTS * part_bytes)
    for number in numbers:
        kept.add("node1", [line(make_block(rank, number)) for rank in (8, 9)])
        kept.flush()
    kept.close()


def fresh(run: Path) -> list[list[Any]]:
    """What the files have, read anew."""
    return sorted(map(list, EveryRank(open_session(run)).rows()))


def tables(run: Path) -> dict[str, int]:
    """The tables of it, by the files' names, with their inodes: another one where they were made again."""
    found = (run / "cache/kind=every_rank").rglob("*.parquet")
    return {path.name.split("=")[1].rsplit("-", 2)[0]: path.stat().st_ino for path in found}


def asked(run: Path, say: Callable[[str], Any] = pytest.fail) -> list[list[Any]]:
    return ask(run, ROWS, say).rows


def test_one_rank_on_one_day_and_the_columns_of_its_block(run: Path) -> None:
    add(run, 10**6, 1, 2, 3)
    (row,) = ask(run, "select * from every_rank where rank = 9 and iteration = 14", pytest.fail).rows
    (expected,) = [each for each in fresh(run) if each[2] == 9 and each[4] == 14]
    assert row[3:-1] == expected
    day = "select count(*) from every_rank where rank = 9 and time::date = make_timestamp_ns({})::date"
    assert ask(run, day.format(expected[0]), pytest.fail).rows == [[3]]
    assert ask(run, day.format(0), pytest.fail).rows == [[0]]
    by_run = "select count(*) from every_rank join runs using (run_id, host)"
    assert ask(run, by_run, pytest.fail).rows == [[6]]


def test_only_what_has_changed_is_made_again(run: Path) -> None:
    add(run, 1, 1, 2, 3)
    assert asked(run) == fresh(run)
    first = tables(run)
    assert len(first) > 2
    assert asked(run) == fresh(run)
    assert tables(run) == first
    add(run, 1, 3, 4)  # another writer reads again what the one before it had
    assert asked(run) == fresh(run)
    second = tables(run)
    assert [first.get(name) == inode for name, inode in sorted(second.items())] == [True, True, False, False]
    assert len(fresh(run)) == 8


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_file_that_is_gone_has_no_table(run: Path, number: int) -> None:
    add(run, 1, 1, 2, 3)
    asked(run)
    (run / ranks_name(START_NS, number)).unlink()
    said: list[str] = []
    assert asked(run, said.append) == fresh(run)
    assert (ranks_name(START_NS, number)[:-6] in tables(run)) is False
    assert ["has been removed to make room" in each for each in said] == [True] * (number == 0)
    for path in run.glob("perf_ranks_*"):
        path.unlink()
    assert (asked(run), tables(run)) == ([], {})
    with pytest.raises(PerfError, match="not every rank is kept"):
        open_run(run).to_arrow("every_rank")


def test_blocks_that_are_sent_again_across_files_count_once(run: Path) -> None:
    add(run, 1, 1, 2, 3)  # a file for each
    add(run, 1, 2, 3, 4)
    assert len(list(run.glob("perf_ranks_*"))) == 5
    rows = asked(run)
    assert rows == fresh(run)
    assert [row[4] // 5 for row in rows if row[2] == 8] == [1, 2, 3, 4]
    (run / ranks_name(START_NS, 0)).unlink()
    assert asked(run, list[str]().append) == fresh(run)


def test_damaged_lines_are_left_out_counted_and_said_each_time(run: Path) -> None:
    add(run, 10**6, 1, 2, 3)
    path = run / ranks_name(START_NS, 0)
    content = bytearray(path.read_bytes())
    content[100] ^= 4
    path.write_bytes(content[:-5])
    for _ in range(2):
        said: list[str] = []
        assert asked(run, said.append) == fresh(run)
        assert [each.removeprefix(f"{path}: ")[:40] for each in said] == [
            "1 lines of ranks' blocks are damaged and",
            f"{len(content.splitlines()[-1]) - 4:,} bytes behind the last whole line: cut"[:40],
        ]
    remarks = open_run(run).to_arrow("every_rank").schema.metadata[b"remarks"]
    assert json.loads(remarks) == said


def test_a_change_that_keeps_size_and_time_is_seen(run: Path) -> None:
    add(run, 10**6, 1)
    before, path = asked(run), run / ranks_name(START_NS, 0)
    found, content = path.stat(), bytearray(path.read_bytes())
    content[100] ^= 4
    path.write_bytes(content)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert len(before) == 2
    assert asked(run, list[str]().append) == []


def test_what_could_not_be_read_once_is_read_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(run, 10**6, 1)

    def broken(path: Path) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("flagscale_perf.store.checked.files", type("Files", (), {"open_regular": broken}))
        said: list[str] = []
        assert asked(run, said.append) == []
        assert [each.rpartition(": ")[2] for each in said] == ["Input/output error"]
    assert len(asked(run)) == 2


def test_a_directory_that_cannot_be_listed_is_said_and_its_tables_stay(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(run, 10**6, 1)
    asked(run)
    first = tables(run)

    def broken(directory: Path, start_wall_ns: int) -> list[int]:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("flagscale_perf.training.analysis.every_rank.ranks_parts", broken)
        said: list[str] = []
        assert asked(run, said.append) == []
        assert [each.rpartition(": ")[2] for each in said] == ["Input/output error"]
    assert tables(run) == first != {}


@pytest.mark.parametrize("content", [b"", b"PAR1", b"another's", b"state"])
def test_a_table_that_is_none_of_ours_is_made_again(run: Path, content: bytes) -> None:
    add(run, 1, 1, 2, 3)
    asked(run)
    first, second, *_ = sorted((run / "cache/kind=every_rank").rglob("*.parquet"))
    if content == b"another's":
        shutil.copyfile(first, second)
    elif content == b"state":
        first.write_bytes(first.read_bytes().replace(b"[[[6,8,", b"[[[6,-,"))
        assert b"[[[6,-," in first.read_bytes()
    else:
        second.write_bytes(content)
    assert asked(run) == fresh(run)


def test_it_is_made_for_this_once_where_nothing_is_kept(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(run, 1, 1, 2)
    with cache.switched_off():
        assert asked(run) == fresh(run)
    assert not (run / "cache").exists()
    ask(run, "select 1 from steps", pytest.fail)
    (run / "cache/kind=every_rank").write_text("no directory")
    assert asked(run) == fresh(run)


def test_python_sealing_and_a_directory_of_tables(run: Path, tmp_path: Path) -> None:
    add(run, 1, 1, 2)
    table = open_run(run).to_arrow("every_rank")
    assert [[*row.values()][3:] for row in table.to_pylist()] == list(
        map(list, EveryRank(open_session(run)).rows())
    )
    first = tables(run)
    seal_all(run, pytest.fail, pytest.fail)
    assert tables(run) == first
    write_tables(open_run(run), tmp_path / "out", pytest.fail)
    paths = sorted((tmp_path / "out/kind=every_rank").rglob("*.parquet"))
    assert [pq.ParquetFile(path).read().num_rows for path in paths] == [2] * len(paths)
    assert sum(len(pq.ParquetFile(path).read()) for path in paths) == len(fresh(run)) == 4


def test_tables_stay_while_the_run_goes_on(run: Path) -> None:
    add(run, 1, 1, 2)
    asked(run)
    first = tables(run)
    with (run / NAME).open("ab") as file:
        file.write(encode(make_step(9)))
    assert ask(run, "select count(*) from steps", pytest.fail).rows == [[6]]
    assert tables(run) == first
