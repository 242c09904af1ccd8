"""Lines with a checksum: what is damaged is counted, and the rest comes back."""

from __future__ import annotations

import random
from pathlib import Path
from zlib import crc32

import pytest

from flagscale_perf.store import checked
from flagscale_perf.store.checked import CheckedLines


def line(number: int) -> bytes:
    body = b'{"number":%d' % number
    return b'%b,"crc32":"%08x"}\n' % (body, crc32(body))


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def numbers(lines: CheckedLines) -> list[int | None]:
    return [None if each is None else each["number"] for each in lines]


def test_lines_of_several_files(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a", line(1) + line(2)), write(tmp_path / "b", line(3) + b"\n" + line(4))]
    found = CheckedLines(paths)
    assert numbers(found) == [1, 2, 3, None, 4]
    assert (found.damaged, found.cut_bytes, found.troubles) == (0, 0, [])


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    good, source = line(1) + line(20) + line(3), random.Random(1)
    for _ in range(300):
        damaged, at = bytearray(good), source.randrange(len(good))
        damaged[at] ^= 1 << source.randrange(8)
        found = CheckedLines([write(tmp_path / "a", bytes(damaged))])
        left = [number for number in numbers(found) if number is not None]
        assert set(left) < {1, 20, 3} and len(left) in (1, 2)
        assert found.damaged + bool(found.cut_bytes) >= 1


def test_a_file_cut_anywhere(tmp_path: Path) -> None:
    good = line(1) + line(2)
    for size in range(len(good) + 1):
        found = CheckedLines([write(tmp_path / "a", good[:size])])
        assert numbers(found) == [1, 2][: size // len(line(1))]
        assert (found.damaged, found.cut_bytes) == (0, size % len(line(1)))


def test_an_earlier_file_that_ends_within_a_line_is_damaged(tmp_path: Path) -> None:
    found = CheckedLines([write(tmp_path / "a", line(1)[:-4]), write(tmp_path / "b", line(2))])
    assert (numbers(found), found.damaged, found.cut_bytes) == ([2], 1, 0)


def test_a_line_without_an_end_takes_no_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "MAX_LINE_BYTES", 64)
    found = CheckedLines([write(tmp_path / "a", line(1) + b"x" * 1000 + b"\n" + line(2) + b"y" * 1000)])
    assert (numbers(found), found.damaged) == ([1, 2], 2)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b'{"a":1', b"null"])
def test_what_is_no_object_is_damaged_though_its_checksum_is_right(tmp_path: Path, content: bytes) -> None:
    text = b'%b,"crc32":"%08x"}\n' % (content, crc32(content))
    found = CheckedLines([write(tmp_path / "a", text + line(2))])
    left = [each for each in found if each is not None]
    assert (len(left), found.damaged) in ((2, 0), (1, 1))


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    found = CheckedLines([tmp_path / "a", tmp_path / "gone", write(tmp_path / "b", line(2))])
    assert numbers(found) == [2]
    assert found.troubles == ["a: not a regular file", "gone: No such file or directory"]
