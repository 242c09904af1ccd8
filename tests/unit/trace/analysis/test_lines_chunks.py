"""What the lines of one text say comes in columns, and does not depend on how the text is cut in chunks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.trace.analysis.lines import Calls, Operations, Stages, TraceLines
from flagscale_perf.trace.figures import MIB
from flagscale_perf.trace.records import Kind
from tests.trace_runs import lines_of_call, lines_of_put

BEHIND = " | timestamp=1706524200.000000 | pid=7 | number=3 | weight=2.5 | step=4"
SIZED = " | batch_size=64 | fields=4 | data_size_mb=1.000000"
LINES = [
    *lines_of_call(),
    *lines_of_call(behind=BEHIND),
    *lines_of_call(behind=BEHIND, before="\x1b[36m(W pid=8, ip=10.0.0.3)\x1b[0m "),
    *lines_of_put(sizes=SIZED, behind=BEHIND + " | partition=train"),
    *lines_of_put(),
]
PIECES = [
    *(
        "",
        " | error=OSError",
        " [repeated 3x across cluster]",
        "\x1b[0m",
        "[TQ-",
        "|",
        " | ",
        "_START",
        "_END | ",
    ),
    *("\n", "1", ".", "nan", "=", " ", "[TQ-TRACE] trace_id=x", "\r\n", "weight=0"),
]


OTHERS = {"s | ": "s | status=error | error=E | ", "rollout": "", "a1b2c3d4": "a b", "throughput": "unsized"}


@pytest.mark.parametrize("line", [*LINES, *(line.replace(*one) for line in LINES for one in OTHERS.items())])
def test_a_line_cut_anywhere_says_what_its_fields_say(line: str) -> None:
    """A blank at the end keeps it from being taken as a whole, and says nothing."""
    for end in range(len(line) + 1):
        for behind in ("", " | error=Timeout", " | number=7", " | get_ratio=1.50%", "\x1b[0m", "[TQ-TRACE] "):
            whole, by_fields = TraceLines(), TraceLines()
            text = line[:end] + behind
            found = list(whole.read([text.encode()]))
            assert found == list(by_fields.read([f"{text} ".encode()]))
            assert (whole.lines, whole.torn, whole.started) == (
                by_fields.lines,
                by_fields.torn,
                by_fields.started,
            )


def test_lines_that_differ_in_their_figures_only_are_one_column() -> None:
    read = TraceLines()
    columns = list(read.read(["\n".join(LINES * 2).encode()]))
    assert (read.lines, read.started, read.torn) == (56, 6, 0)
    assert len(columns) == 3 * 4 + 2
    assert Stages("7", "rollout", 2.5, 1, [0.8, 0.8]) in columns
    lists = ([0.914024] * 2, [(5.69, 87.53, 6.79)] * 2, ["a1b2c3d4"] * 2, [3, 3])
    assert Calls("7", "rollout", 2.5, "", *lists) in columns
    assert Calls("8@10.0.0.3", "rollout", 2.5, "", *lists) in columns
    assert Operations("7", Kind.PUT, 2.5, "", [0.06] * 2, [MIB] * 2, [64] * 2, [4] * 2, [3, 3]) in columns
    size, nothing = 253.33 * 0.06 * MIB, [None, None]
    assert Operations("", Kind.PUT, 1.0, "", [0.06] * 2, [size] * 2, nothing, nothing, []) in columns


def _read(chunks: list[bytes]) -> Any:
    """Counts, and the ends by all that their columns have once."""
    read = TraceLines()
    found: dict[Any, list[Any]] = {}
    for column in read.read(chunks):
        key = tuple(value for value in column if not isinstance(value, list))
        merged = found.setdefault(key, [[] for value in column if isinstance(value, list)])
        for kept, values in zip(merged, (value for value in column if isinstance(value, list)), strict=True):
            kept += values
    return read.lines, read.torn, read.started, read.repeated, read.lossy, found


@given(
    st.permutations(LINES),
    st.lists(st.tuples(st.integers(0, 3000), st.sampled_from(PIECES), st.integers(0, 30)), max_size=4),
)
def test_one_chunk_says_what_its_lines_say_one_by_one(
    log: list[str], changes: list[tuple[int, str, int]]
) -> None:
    text = "\n".join(log)
    for place, put, gone in changes:
        text = text[:place] + put + text[place + gone :]
    lines = [f"{line}\n".encode() for line in text.split("\n")]
    assert _read([b"".join(lines)]) == _read(lines)
