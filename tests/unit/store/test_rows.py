"""Rows of a list are kept for files that are as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.store import cache, rows
from flagscale_perf.store.part import whole_parts
from flagscale_perf.store.rows import Rows


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("flagscale_perf.spine.files.TICK_NS", 0)  # else times of a new file prove nothing
    monkeypatch.setattr(rows, "MIN_BYTES", 1)
    (tmp_path / "runs" / "a").mkdir(parents=True)
    paths = [tmp_path / "runs" / "a" / name for name in ("one", "two")]
    for path in paths:
        path.write_bytes(b"content")
    return paths


def kept(paths: list[Path]) -> Path:
    made = Rows(paths[0].parents[1])
    for path in paths:
        assert made.get([path]) is None
        made.put([path], whole_parts([path]), {"name": path.name}, ["more", 1.5])
    made.keep()
    return paths[0].parents[1]


def test_a_row_is_there_again_as_long_as_its_file_is_the_same(paths: list[Path]) -> None:
    directory = kept(paths)
    paths[1].write_bytes(b"CONTENT")
    made = Rows(directory)
    row, besides = made.get([paths[0]]) or (None, list)
    assert (row, besides()) == ({"name": "one"}, ["more", 1.5])
    assert made.get([paths[1]]) is None and made.get(paths) is None


def test_one_that_is_not_listed_any_more_goes(paths: list[Path]) -> None:
    directory = kept(paths)
    made = Rows(directory)
    made.put([paths[0]], whole_parts([paths[0]]), 3, None)
    made.keep()
    assert Rows(directory).get([paths[1]]) is None
    assert (Rows(directory).get([paths[0]]) or [None])[0] == 3


def test_nothing_is_kept_of_little_and_nothing_without_a_cache(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with cache.switched_off():
        kept(paths)
    monkeypatch.setattr(rows, "MIN_BYTES", 1 << 20)
    kept(paths)
    assert not (paths[0].parents[1] / "cache").exists()
