"""The beginning of a file is known again where it is the same, and never where it is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flagscale_perf.spine import files
from flagscale_perf.store.part import Part, Reader

CONTENT = bytes(range(256)) * 1024


def part_of(path: Path, size: int = 200_000) -> Part:
    """Reads it, as old as a file that has ended a while ago."""
    with path.open("rb") as file:
        reader = Reader(file)
        read = b"".join(iter(lambda: reader.read(min(4096, size - reader.size_bytes)), b""))
        assert read == CONTENT[:size]
        return reader.part()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    monkeypatch.setattr(
        "flagscale_perf.spine.files.TICK_NS", 0
    )  # else a new file proves nothing by its times
    return path


def test_a_file_that_was_not_touched_is_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = part_of(path)
    monkeypatch.setattr("flagscale_perf.store.part._samples", pytest.fail)
    assert part.still(path) is part
    assert (
        Part(*part) == part == Part(*map(lambda each: tuple(each) if isinstance(each, list) else each, part))
    )


def test_a_file_that_grew_or_was_copied_or_touched_has_it_still(path: Path, tmp_path: Path) -> None:
    part = part_of(path)
    copy = tmp_path / "copy"
    copy.write_bytes(CONTENT)
    os.utime(copy, (1, 1))
    for each in (copy, path):
        with each.open("ab") as file:
            file.write(b"more")
        now = part.still(each)
        assert now is not None and now[:3] == part[:3] and now.still(each) is now


@pytest.mark.parametrize("at", [0, 100_000, 199_999])
@pytest.mark.parametrize("is_set_back", [False, True])
def test_a_byte_that_was_changed_in_place_is_seen(path: Path, at: int, is_set_back: bool) -> None:
    part, before = part_of(path), path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"x")
    if is_set_back:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert part.still(path) is None


def test_a_cut_or_removed_file_or_a_pipe_has_it_not(path: Path) -> None:
    part = part_of(path)
    os.truncate(path, 199_999)
    assert part.still(path) is None
    path.unlink()
    assert part.still(path) is None
    os.mkfifo(path)
    assert part.still(path) is None


def test_of_a_file_that_is_being_written_only_samples_are_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = part_of(path)
    fd = files.open_locked(path)
    try:
        os.write(fd, b"more")
        monkeypatch.setattr("flagscale_perf.store.part._crc32", pytest.fail)
        assert part.still(path) is not None
        other = path.with_name("other")
        other.write_bytes(bytes(300_000))
        os.replace(other, path)
        assert part.still(path) is None
    finally:
        os.close(fd)


def test_times_of_a_file_that_only_just_changed_prove_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    part = part_of(path)
    assert not any(part.found)
    assert part.still(path) is not None  # by its bytes


def test_reading_goes_on_behind_a_part(path: Path) -> None:
    part, whole = part_of(path), part_of(path, len(CONTENT))
    with path.open("rb") as file:
        reader = Reader(file)
        assert reader.go_on(part, 199_990) == CONTENT[199_990:200_000]
        reader.read(len(CONTENT))
        assert reader.part() == whole


def test_a_short_file_is_a_part_too(tmp_path: Path) -> None:
    (path := tmp_path / "file").write_bytes(CONTENT[:3])
    assert part_of(path, 3).still(path) is not None
    with path.open("rb") as file:
        assert Reader(file).part().size_bytes == 0
