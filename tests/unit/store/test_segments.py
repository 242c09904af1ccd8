"""What other processes decode of a long file is what one reads alone: to the record, the bad line, the
checksum and the byte of a report; and nobody is left behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.spine import companion
from flagscale_perf.spine.jsonl import MAX_LINE_BYTES, BadLine
from flagscale_perf.spine.records import Record, RunHeader
from flagscale_perf.store import kept, segments
from flagscale_perf.store.packed import unpacked
from flagscale_perf.store.run_file import Position, RunFile
from tests.every_instrument import WRITERS
from tests.unit.store.test_kept import RECORDED, report

SEGMENT_BYTES = 3 << 15  # more than is read at once, so that the first one has several chunks
SIZE_BYTES = 20 * SEGMENT_BYTES


@pytest.fixture
def unpacked_count(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Short segments, two processors; how many chunks came from other processes."""
    count = [0]

    def counted(read: Callable[[int], memoryview]) -> Any:
        count[0] += 1
        return unpacked(read)

    for name, value in (("MIN_BYTES", 0), ("ALONE_BYTES", 1), ("SEGMENT_BYTES", SEGMENT_BYTES)):
        monkeypatch.setattr(segments, name, value)
    monkeypatch.setattr(segments, "unpacked", counted)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    return count


def alone(call: Callable[[], Any]) -> Any:
    """What it returns where there is one processor."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _: {0})
        patch.setattr(companion, "start", pytest.fail)
        return call()


def read(path: Path) -> tuple[list[Record], list[Any], int, str]:
    """Its records, and what was wrong with others."""
    file = RunFile(path)
    records = [record for chunk in file.chunks() for record in chunk.records()]
    return records, file.bad_lines, file.skipped, file.joined


def lengthened(path: Path, lines: list[bytes]) -> Path:
    """The file with its own lines again and again, some of which are `lines`, and its end."""
    header, *own, end = path.read_bytes().splitlines(keepends=True)
    each = sum(map(len, own)) // len(own) + 1
    many = [*islice(cycle(own), SIZE_BYTES // each)]
    for number, line in enumerate(lines, 1):
        many.insert(number * len(many) // (len(lines) + 1), line)
    path.write_bytes(b"".join((header, *many, end)))
    return path


def children(pid: int | None = None) -> set[int]:
    """Processes that this one has, or another one."""
    pid = pid or os.getpid()
    return {*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())}


def run(tmp_path: Path, lines: list[bytes] | None = None, name: str = "training") -> Path:
    """A long run file of this instrument."""
    (directory := tmp_path / "run").mkdir()
    return lengthened(WRITERS[name](directory), lines or [])


def test_a_report_is_the_same(
    unpacked_count: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(kept, "MIN_BYTES", 1 << 30)
    for number, name in enumerate(WRITERS):
        (directory := tmp_path / name).mkdir()
        path = lengthened(WRITERS[name](directory), [])
        for is_kept in (False, True):
            unpacked_count[0] = 0
            found = report(path, is_kept)
            assert found == alone(lambda path=path: report(path, is_kept=False)), name
            assert unpacked_count[0] >= 5, (number, name)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_every_recorded_file_gives_the_same_records(
    path: Path, unpacked_count: list[int], tmp_path: Path
) -> None:
    own = tmp_path / path.name
    own.write_bytes(path.read_bytes())
    path = lengthened(own, [])
    assert read(path) == alone(lambda: read(path))
    assert unpacked_count[0] >= 5


BAD = {
    "damaged": [b"{no json}\n", b'{"kind":"step"}\n', b"\xff\xfe\n", b'{"kind":"unheard_of"}\n'],
    "empty lines": [b"\n", b" \n", b"\r\n"] * 3,
    "two records on a line": [
        b'{"kind":"clock","wall_ns":1,"mono_ns":2}{"kind":"clock","wall_ns":1,"mono_ns":2}\n'
    ],
    "a record on two lines": [b'{"kind":"clock",\n"wall_ns":1,"mono_ns":2}\n'],
    "one too few and one too many": [
        b'{"kind":"clock",\n"wall_ns":1,"mono_ns":2}\n'
        b'{"kind":"clock","wall_ns":1,"mono_ns":2}{"kind":"clock","wall_ns":1,"mono_ns":2}\n'
    ],
    "longer than a segment": [b'{"kind":"step","x":"' + b"y" * (3 * SEGMENT_BYTES) + b'"}\n'],
    "a good one longer than a segment": [
        b'{"kind":"clock","wall_ns":1,"mono_ns":2,"x":"' + b"y" * (3 * SEGMENT_BYTES) + b'"}\n'
    ],
    "too long": [b"y" * (3 * MAX_LINE_BYTES) + b"\n"],
    "wide": [b'{"kind":"clock","wall_ns":1' + b"0" * 40 + b',"mono_ns":2}\n'],
    "spaces": [b' { "mono_ns" : 2 , "kind" : "clock", "wall_ns" : 1 } \n'],
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_record_is_told_like_alone(name: str, unpacked_count: list[int], tmp_path: Path) -> None:
    path = run(tmp_path, BAD[name])
    found = read(path)
    assert found == alone(lambda: read(path))
    assert unpacked_count[0]


@pytest.mark.parametrize("place", [0.3, 0.62, 0.99])
def test_nothing_is_read_behind_a_second_header(
    place: float, unpacked_count: list[int], tmp_path: Path
) -> None:
    path = run(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines.insert(int(place * len(lines)), b'{"kind":"st' + lines[0])
    path.write_bytes(b"".join(lines))
    found = read(path)
    assert found == alone(lambda: read(path))
    assert found[-1]
    assert children() == set()


def test_the_last_line_may_be_cut(unpacked_count: list[int], tmp_path: Path) -> None:
    path = run(tmp_path)
    for size in (SIZE_BYTES, 10 * SEGMENT_BYTES, 10 * SEGMENT_BYTES + 1, path.stat().st_size - 7):
        os.truncate(path, min(size, path.stat().st_size))
        assert read(path) == alone(lambda: read(path))
    assert unpacked_count[0]


def test_a_reading_goes_on_where_one_stood(unpacked_count: list[int], tmp_path: Path) -> None:
    path = run(tmp_path, [b"bad\n"] * 5)
    (records, bad, skipped, _), content = read(path), path.read_bytes()
    path.write_bytes(content[: content.rfind(b"\n", 0, len(content) * 2 // 3) + 1])
    file, told, noted = RunFile(path), list[Position](), list[tuple[list[BadLine], int]]()

    def tell(position: Position) -> None:
        told.append(position)
        noted.append((list(file.bad_lines), file.skipped))

    for _ in file.chunks(at_end=tell):
        pass
    file.bad_lines, file.skipped = noted[0]  # what is behind the position is read again
    path.write_bytes(content)
    after = [record for chunk in file.chunks(told[0], tell) for record in chunk.records()]
    for part, line_begin, lines in told:
        assert part.crc32 == zlib.crc32(content[: part.size_bytes])
        assert content[:line_begin].count(b"\n") == lines
    assert len(told) == 2 and told[0].part.size_bytes > SIZE_BYTES // 2
    assert after == records[-len(after) :]
    assert (file.bad_lines, file.skipped) == (bad, skipped)
    assert unpacked_count[0]


def test_a_process_that_dies_changes_nothing(unpacked_count: list[int], tmp_path: Path) -> None:
    path = run(tmp_path)
    expected = read(path)[0]
    whole = unpacked_count[0]
    assert expected == alone(lambda: read(path))[0]
    for _ in range(20):  # until one dies before it has done everything
        records, unpacked_count[0] = list[Record](), 0
        for chunk in RunFile(path).chunks():
            records += chunk.records()
            if unpacked_count[0]:
                for pid in children():
                    os.kill(pid, signal.SIGKILL)
        assert records == expected
        if unpacked_count[0] < whole:
            break
    assert 0 < unpacked_count[0] < whole


@pytest.mark.parametrize("fails_at", [0, 1])
def test_a_process_that_cannot_be_started_changes_nothing(
    fails_at: int, unpacked_count: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, start, count = run(tmp_path), companion.start, [0]

    def failing(*args: Any, **options: Any) -> Any:
        count[0] += 1
        if count[0] > fails_at:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return start(*args, **options)

    monkeypatch.setattr(companion, "start", failing)
    assert read(path) == alone(lambda: read(path))
    assert unpacked_count == [0]
    assert children() == set()


def test_who_looks_at_the_first_records_starts_nothing_and_who_stops_leaves_nothing(
    unpacked_count: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(companion, "start", pytest.fail)
        assert isinstance(next(iter(RunFile(path))), RunHeader)
    with pytest.raises(KeyboardInterrupt):
        for _ in RunFile(path).chunks():
            if unpacked_count[0]:
                assert children()
                raise KeyboardInterrupt
    assert children() == set()


def test_a_short_file_is_read_alone(
    unpacked_count: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run(tmp_path)
    monkeypatch.setattr(segments, "MIN_BYTES", 64 << 20)
    monkeypatch.setattr(companion, "start", pytest.fail)
    read(path)


PARENT = """
import os, sys, time
from pathlib import Path
from flagscale_perf.analysis.instrument import load
from flagscale_perf.analysis.job import open_session
from flagscale_perf.store import segments
segments.MIN_BYTES, segments.ALONE_BYTES = 0, 1
segments.SEGMENT_BYTES = int(sys.argv[2])
os.sched_getaffinity = lambda _: {0, 1}
session = open_session(Path(sys.argv[1]))
load(session.instrument)
chunks = session.files[0].chunks()
for _ in range(3):
    next(chunks)
print("read", flush=True)
time.sleep(600)
"""


def test_the_others_end_when_this_process_is_killed(tmp_path: Path) -> None:
    path = run(tmp_path)
    command = [sys.executable, "-c", PARENT, str(path), str(SEGMENT_BYTES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == b"read\n"
        pids = children(parent.pid)
        assert len(pids) == 2
        parent.kill()
    until = time.monotonic() + 60
    while any(map(_is_there, pids)):
        assert time.monotonic() < until
        time.sleep(0.05)


def _is_there(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except OSError:
        return False
