"""What is kept beside run files: whole files in a place that is ours, or nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from flagscale_perf.store import cache


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def put(run: Path, content: bytes, name: str = "kind=steps/a") -> None:
    cache.keep(run, name, "", content)


def found(run: Path, name: str = "kind=steps/a", about: str = "") -> list[bytes]:
    return [*cache.kept(run, name, about)]


def test_what_is_kept_is_found_and_the_last_one_stays(run: Path) -> None:
    assert found(run) == []
    put(run, b"one")
    put(run, b"two")
    assert found(run) == [b"two"]
    assert found(run, about="of another") == []
    assert os.listdir(run / "cache" / "kind=steps") == ["a"]


def test_a_place_that_cannot_be_written_gives_way_to_the_users_own(run: Path, tmp_path: Path) -> None:
    (run / "cache").touch()  # root may write anywhere: no directory can be made here either way
    put(run, b"one")
    assert found(run) == [b"one"]
    assert (tmp_path / "home" / "flagscale_perf").stat().st_mode & 0o077 == 0


def test_nothing_is_kept_without_a_place_for_the_key(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # not a place of the user's
    put(run, b"one")
    assert found(run) == [] and not (run / "cache").exists()
    (run / "cache").mkdir()
    (run / "cache" / "a").write_bytes(cache._signature(b"", "", b"one") + b"one")  # as anybody may sign
    assert found(run, "a") == []


def test_no_link_is_followed(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "kind=steps").mkdir(parents=True)
    (other / "kind=steps" / "a").write_bytes(b"another's")
    (run / "cache").symlink_to(other)
    put(run, b"one")  # in the user's own
    assert found(run) == [b"one"]
    (run / "cache").unlink()
    put(run, b"two", "b")
    (run / "cache" / "a").symlink_to(run / "cache" / "b")
    assert found(run, "a") == []
    put(run, b"one", "a")  # in the place of the link, not through it
    assert (found(run, "a"), found(run, "b")) == ([b"one"], [b"two"])
    assert (other / "kind=steps" / "a").read_bytes() == b"another's"


def test_a_writing_that_fails_leaves_what_was_there(run: Path, tmp_path: Path) -> None:
    put(run, b"one", "a")
    for place in cache.places(run):
        with pytest.raises(OSError, match="No space left"), cache.new_file(place, "a") as file:
            file.write(b"half")
            raise OSError(28, "No space left on device")
    assert (found(run, "a"), os.listdir(run / "cache")) == ([b"one"], ["a"])
    assert sorted(each.name for each in tmp_path.rglob("*") if each.is_file()) == ["a", "key"]


def test_neither_a_pipe_nor_a_stranger_is_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(run, b"one", "a")
    os.mkfifo(run / "cache" / "pipe")
    assert found(run, "pipe") == []
    monkeypatch.setattr(cache, "MAX_BYTES", 2)
    assert found(run, "a") == []
    if os.geteuid() == 0:
        monkeypatch.undo()
        os.chown(run / "cache" / "a", 12345, 12345)
        assert found(run, "a") == []


def test_the_users_own_is_bounded_the_oldest_goes_first(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, now = tmp_path / "home" / "flagscale_perf", time.time()
    ages_s = {"a": 10, "b": 20, "c": 30, "d": cache.OWN_AGE_S + 1}
    for name, age_s in ages_s.items():
        (own / (name * 32) / "kind=step").mkdir(parents=True)
        (own / (name * 32) / "kind=step/x").write_bytes(b"x" * 100_000)
        for path in (own / (name * 32), *(own / (name * 32)).rglob("*")):
            os.utime(path, (now - age_s, now - age_s))
    (own / "another's").mkdir()
    (run / "kept").write_bytes(b"x")
    (own / ("e" * 32)).symlink_to(run)
    (run / "cache").touch()  # so that the user's own is written
    monkeypatch.setattr(cache, "OWN_BYTES", 250_000)
    cache._bound.cache_clear()
    put(run, b"one")
    assert found(run) == [b"one"]
    left = [name for name in "abcde" if os.path.lexists(own / (name * 32))]
    assert left == ["a", "b", "e"] and (own / "another's").exists() and (run / "kept").exists()
    monkeypatch.setattr(cache, "OWN_BYTES", 0)  # who looks often does so once
    put(run, b"two")
    assert (own / ("a" * 32)).exists()


def test_beside_run_files_nothing_is_bounded(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "OWN_BYTES", 0)
    cache._bound.cache_clear()
    put(run, b"one")
    put(run, b"two", "b")
    assert (found(run), found(run, "b")) == ([b"one"], [b"two"])
