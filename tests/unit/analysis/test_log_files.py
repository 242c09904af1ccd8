"""Logs in whatever shape they lie."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

import pytest

from flagscale_perf.analysis import log_files
from flagscale_perf.analysis.log_files import LogChunks, has_mark, has_title, held, older_parts
from flagscale_perf.spine.errors import PerfError


def test_a_directorys_logs_come_with_the_oldest_part_first(tmp_path: Path) -> None:
    below = tmp_path / "session" / "logs"
    below.mkdir(parents=True)
    for name in ("a.log", "a.log.1", "a.log.10", "a.log.2.gz", "b.txt", "picture.png", "run.jsonl"):
        (tmp_path / name).write_bytes(b"")
    (below / "worker-1.out").write_bytes(b"")
    found = [path.relative_to(tmp_path).as_posix() for path in log_files.log_files(tmp_path)]
    assert found == ["a.log.10", "a.log.2.gz", "a.log.1", "a.log", "b.txt", "session/logs/worker-1.out"]
    assert [path.name for path in older_parts(tmp_path / "a.log")] == ["a.log.10", "a.log.2.gz", "a.log.1"]
    assert log_files.log_files(tmp_path / "picture.png") == [tmp_path / "picture.png"]


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PerfError, match="does not exist; give a log"):
        log_files.log_files(tmp_path / "no.log")
    with pytest.raises(PerfError, match="no log"):
        log_files.log_files(tmp_path)


def test_chunks_end_with_lines_and_the_last_may_be_cut(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(log_files, "CHUNK_BYTES", 8)
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\nthree\nfour and more")
    chunks = LogChunks(path)
    assert list(chunks) == [b"one\ntwo\n", b"three\n", b"four and more"]
    assert chunks.trouble == ""


def test_a_text_without_lines_is_given_in_parts(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(log_files, "CHUNK_BYTES", 4)
    path = tmp_path / "a.log"
    path.write_bytes(b"x" * 23)
    assert list(map(len, LogChunks(path))) == [12, 11]


def test_a_compressed_log_that_is_cut_gives_what_it_has(tmp_path: Path) -> None:
    path, text = tmp_path / "a.log.gz", os.urandom(3 << 20).hex().encode() + b"\n"
    path.write_bytes(gzip.compress(b"whole\n" * 1000, 1))
    assert list(LogChunks(path)) == [b"whole\n" * 1000]
    path.write_bytes(gzip.compress(b"whole\n" + text, 1)[: -(1 << 20)])
    chunks = LogChunks(path)
    assert next(iter(chunks)) == b"whole\n"
    unpacked = zlib.decompressobj(31).decompress(path.read_bytes())
    assert len(unpacked) - len(b"".join(LogChunks(path))) < 1 << 13
    assert b"".join(chunks) != b""
    assert chunks.trouble == "Compressed file ended before the end-of-stream marker was reached"


def test_an_entry_that_cannot_be_read_hides_no_other_one(tmp_path: Path) -> None:
    for name in ("a.log", "e.log"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "b\nc.log").write_bytes(b"two lines of a name")
    (tmp_path / "d.log").symlink_to("nowhere")
    os.mkfifo(tmp_path / "e.log.1")
    files = log_files.log_files(tmp_path)
    found = {chunks.path.name: (b"".join(chunks), chunks.trouble) for chunks in held(files, files)}
    assert (found["a.log"], found["b\nc.log"]) == ((b"a.log", ""), (b"two lines of a name", ""))
    assert found["e.log"] == (b"e.log", "")
    assert found["d.log"] == (b"", "No such file or directory")
    assert found["e.log.1"] == (b"", "not a regular file")
    with pytest.raises(PerfError, match="is not a regular file"):
        list(held([tmp_path / "e.log.1"], []))


def test_a_mark_is_found_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"line\n" * 1_000_000 + b"(W pid=7) [TQ-TRACE] x\n")
    assert has_mark(path, b"[TQ-TRACE] ")
    assert not has_mark(path, b"[TQ-DETAIL] ")
    assert not has_mark(tmp_path, b"line")


def rotate(path: Path, newest: bytes) -> None:
    """As a writer of logs does: the parts move by one, and a new file begins."""
    for number in (2, 1):
        if (older := path.with_name(f"{path.name}.{number}")).exists():
            older.rename(path.with_name(f"{path.name}.{number + 1}"))
    path.rename(path.with_name(f"{path.name}.1"))
    path.write_bytes(newest)


@pytest.fixture
def rotated(tmp_path: Path) -> Path:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    rotate(path, b"two\n")
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(b"other\n"))
    return path


def test_a_log_that_is_rotated_while_it_is_read_is_read_once(rotated: Path) -> None:
    files, text = log_files.log_files(rotated.parent), []
    for chunks in held(files, set(files)):
        if not text:
            rotate(rotated, b"three\n")  # what was "two" is called a.log.1 now
        text.append(b"".join(chunks))
    assert text == [b"one\n", b"two\n", b"other\n"]


def test_files_that_were_named_are_read_as_they_are(rotated: Path) -> None:
    assert [b"".join(chunks) for chunks in held([rotated], ())] == [b"two\n"]
    with pytest.raises(PerfError, match=r"a.log.7'"):
        list(held([rotated.with_name("a.log.7")], ()))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_a_text_of_another_program_is_utf_8_without_a_mark(tmp_path: Path, monkeypatch, encoding) -> None:
    monkeypatch.setattr(log_files, "CHUNK_BYTES", 7)  # chunks end within characters, too
    path = tmp_path / "a.log"
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    path.write_bytes(mark + "[TITLE] ä\r\ntwo\n".encode(encoding))
    assert b"".join(LogChunks(path)) == "[TITLE] ä\r\ntwo\n".encode()
    assert [*log_files.lines_of(LogChunks(path))] == ["[TITLE] ä\r\n".encode(), b"two\n"]
    assert has_title(path, b"[TITLE]") and not has_title(path, b"[OTHER]")
