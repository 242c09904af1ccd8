"""Run files looked for below a directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.store import runs
from flagscale_perf.store.runs import Unread, find_runs, runs_below


def touch(directory: Path, *names: str) -> None:
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def found_in(directory: Path, most: int = runs.MAX_RUNS) -> tuple[list[str], list[Unread]]:
    paths, unread = find_runs(directory, most)
    return [str(path.relative_to(directory)) for path in paths], unread


def test_files_in_it_and_below_by_directory_and_age(tmp_path: Path) -> None:
    b, a = "perf_records_20240130_000000.jsonl", "perf_records_20240129_000000.jsonl"
    touch(
        tmp_path, f"two/{b}", f"two/{a}", f"one/deep/{b}", b, "perf_summary_20240129_000000.json", "x.jsonl"
    )
    touch(tmp_path, f".hidden/{a}")
    (tmp_path / "linked").symlink_to(tmp_path / "two")
    assert found_in(tmp_path) == ([b, f"one/deep/{b}", f"two/{a}", f"two/{b}"], [])


def test_what_is_kept_beside_runs_is_not_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "perf_records_20240129_000000.jsonl"
    kinds = [f"run{run}/cache/kind={kind}/host=node0/part=1.parquet" for run in (1, 2) for kind in range(9)]
    touch(tmp_path, f"run1/{name}", f"run2/{name}", f"cache/run/{name}", *kinds)
    monkeypatch.setattr(runs, "MAX_DIRECTORIES", 5)
    assert found_in(tmp_path, 4) == ([f"{place}/{name}" for place in ("cache/run", "run1", "run2")], [])


def test_more_runs_may_be_in_more_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, *(f"{run}/perf_records_20240129_000000.jsonl" for run in range(5)))
    monkeypatch.setattr(runs, "MAX_DIRECTORIES", 2)
    assert find_runs(tmp_path, 4)[1] == [Unread(".", "only 4 directories were looked into")]
    assert find_runs(tmp_path, 6)[1] == []


def test_without_any_it_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(
        PerfError, match=r"no perf_records_\*.jsonl in or below '.*'; give a directory that has"
    ):
        find_runs(tmp_path)
    with pytest.raises(PerfError, match="does not exist; give one that has"):
        find_runs(tmp_path / "absent")
    touch(tmp_path, "file")
    with pytest.raises(PerfError, match="is not a directory; give one"):
        find_runs(tmp_path / "file")


def test_its_bounds_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "perf_records_2024012{}_000000.jsonl"
    touch(tmp_path, *(f"a/{name.format(day)}" for day in range(5)), f"a/b/c/{name.format(9)}")
    monkeypatch.setattr(runs, "MAX_DEPTH", 2)
    assert found_in(tmp_path, 2) == (
        [f"a/{name.format(3)}", f"a/{name.format(4)}"],
        [
            Unread("a/b/c", "deeper than 2 directories; give one further down"),
            Unread(".", "only the newest 2 of 5 are listed"),
        ],
    )
    monkeypatch.setattr(runs, "MAX_DIRECTORIES", 2)
    assert Unread(".", "only 2 directories were looked into") in found_in(tmp_path, 2)[1]


def test_environments_and_packages_are_left_out_and_what_is_too_deep_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "perf_records_20240129_000000.jsonl"
    touch(tmp_path, name, "venv/pyvenv.cfg", f"venv/lib/{name}", f"node_modules/a/{name}")
    touch(tmp_path, "a/b/c1/x", "a/b/c2/x", "a/b/c3/x")
    monkeypatch.setattr(runs, "MAX_DEPTH", 2)
    deep = Unread("a/b/c1", "deeper than 2 directories, like 2 more; give one further down")
    assert found_in(tmp_path) == ([name], [deep])


def test_a_directory_that_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "perf_records_20240129_000000.jsonl", "closed/perf_records_20240129_000000.jsonl")
    scan = os.scandir

    def refuse(place: Path) -> object:
        if Path(place).name == "closed":
            raise PermissionError(13, "Permission denied")
        return scan(place)

    monkeypatch.setattr(os, "scandir", refuse)
    assert found_in(tmp_path) == (
        ["perf_records_20240129_000000.jsonl"],
        [Unread("closed", "Permission denied")],
    )


def test_runs_below_a_directory_are_found_but_not_too_deep(tmp_path: Path) -> None:
    assert runs_below(tmp_path) == []
    for directory in ("b/c", "a", "1/2/3/4", "1/2/3/4/5"):
        (tmp_path / directory).mkdir(parents=True, exist_ok=True)
        (tmp_path / directory / "perf_records_20240129_103000.jsonl").touch()
    assert runs_below(tmp_path) == [tmp_path / each for each in ("1/2/3/4", "a", "b/c")]
    with pytest.raises(PerfError, match=f"give '{tmp_path}/1/2/3/4' or '{tmp_path}/a' or '{tmp_path}/b/c'$"):
        open_session(tmp_path)
