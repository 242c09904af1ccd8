"""Whole lines of a file, a damaged one too."""

from __future__ import annotations

import io

from flagscale_perf.spine.jsonl import MAX_LINE_BYTES, BadLine, encode, read_records, recall
from flagscale_perf.spine.records import Record
from tests.fakes import make_step


def read(content: bytes) -> list[Record | BadLine]:
    return list(read_records(io.BytesIO(content), recall))


def test_the_longest_line_there_may_be_is_read() -> None:
    line = encode(make_step(1))[:-1].ljust(MAX_LINE_BYTES - 1) + b"\n"
    assert read(line) == [make_step(1)]
    assert read(b" " + line) == [BadLine(1, f"longer than {MAX_LINE_BYTES} bytes")]


def test_the_good_lines_of_a_damaged_file_are_kept() -> None:
    long = b'{"kind":"' + b"x" * (3 * MAX_LINE_BYTES) + b'"}\n'
    content = (
        encode(make_step(1))
        + b"\0\0\0\n"
        + encode(make_step(2))
        + long
        + b"\n"
        + encode(make_step(3))
        + encode(make_step(4))[:-9]
    )
    assert read(content) == [
        make_step(1),
        BadLine(2, "Expecting value: line 1 column 1 (char 0)"),
        make_step(2),
        BadLine(4, f"longer than {MAX_LINE_BYTES} bytes"),
        BadLine(5, "Expecting value: line 1 column 1 (char 0)"),
        make_step(3),
        BadLine(7, "cut off", torn=True),
    ]
