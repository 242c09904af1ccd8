"""What is kept beside run files: whole files in a place that is ours, or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from flagscale_perf.store import cache


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "perf_records_x.jsonl"
    path.touch()
    return path


def put(run: Path, content: bytes, name: str = "kind=steps/a") -> Path | None:
    return cache.keep(run, name, lambda file: file.write(content))


def test_what_is_kept_is_found_and_the_last_one_stays(run: Path) -> None:
    assert [*cache.kept(run, "kind=steps/a")] == []
    assert put(run, b"one") == put(run, b"two") == run.parent / "cache" / "kind=steps" / "a"
    assert [*cache.kept(run, "kind=steps/a")] == [b"two"]
    assert os.listdir(run.parent / "cache" / "kind=steps") == ["a"]


def test_a_place_that_cannot_be_written_gives_way_to_the_users_own(run: Path, tmp_path: Path) -> None:
    (run.parent / "cache").touch()  # root may write anywhere: no directory can be made here either way
    found = put(run, b"one")
    assert found is not None and found.is_relative_to(tmp_path / "home")
    assert [*cache.kept(run, "kind=steps/a")] == [b"one"]
    assert (tmp_path / "home" / "flagscale_perf").stat().st_mode & 0o077 == 0


def test_no_link_is_followed(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # not a place of the user's
    other = tmp_path / "other"
    (other / "kind=steps").mkdir(parents=True)
    (other / "kind=steps" / "a").write_bytes(b"another's")
    (run.parent / "cache").symlink_to(other)
    assert (put(run, b"one"), [*cache.kept(run, "kind=steps/a")]) == (None, [])
    (run.parent / "cache").unlink()
    put(run, b"one", "b")
    (run.parent / "cache" / "a").symlink_to(other / "kind=steps" / "a")
    assert [*cache.kept(run, "a")] == []
    put(run, b"one", "a")  # in the place of the link, not through it
    assert (other / "kind=steps" / "a").read_bytes() == b"another's"
    assert [*cache.kept(run, "a")] == [b"one"]


def test_a_writing_that_fails_leaves_what_was_there(run: Path) -> None:
    def full(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    put(run, b"one", "a")
    assert cache.keep(run, "a", full) is None
    assert ([*cache.kept(run, "a")], os.listdir(run.parent / "cache")) == ([b"one"], ["a"])


def test_neither_a_pipe_nor_a_stranger_is_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(run, b"one", "a")
    os.mkfifo(run.parent / "cache" / "pipe")
    assert [*cache.kept(run, "pipe")] == []
    monkeypatch.setattr(cache, "MAX_BYTES", 2)
    assert [*cache.kept(run, "a")] == []
    if os.geteuid() == 0:
        monkeypatch.undo()
        os.chown(run.parent / "cache" / "a", 12345, 12345)
        assert [*cache.kept(run, "a")] == []
