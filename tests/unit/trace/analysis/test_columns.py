"""Lines that are read many at a time say what they say one by one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.analysis.log_files import LogChunks
from flagscale_perf.trace.analysis import lines
from flagscale_perf.trace.analysis.columns import MIB, Calls, Operations, Stages, Usual, columns_of
from flagscale_perf.trace.analysis.log_reader import LogReader, Losses
from flagscale_perf.trace.analysis.sums import Sums
from tests.trace_runs import lines_of_call, lines_of_put

BEHIND = " | timestamp=1706524200.000000 | pid=7 | number=3 | weight=2.5 | step=4"
SIZED = " | batch_size=64 | fields=4 | data_size_mb=1.000000"
USUAL = [
    *lines_of_call(),
    *lines_of_call(behind=BEHIND, before="\x1b[36m(W pid=8, ip=10.0.0.3)\x1b[0m "),
    *lines_of_put(sizes=SIZED, behind=BEHIND + " | partition=train"),
    *lines_of_put(),
]


def test_usual_lines_come_in_columns_and_what_begins_is_left() -> None:
    text = "\n".join(USUAL).encode()
    count, started, columns, rest = columns_of(text, lambda _, pid: pid.decode())
    assert (count, rest) == (20, b"")
    assert started == {
        b"FUNCTION_START": 2,
        b"GET_START": 2,
        b"COMPUTE_START": 2,
        b"PUT_START": 2,
        b"TQ_CLIENT_PUT_START": 2,
    }
    assert Stages("7", "rollout", 2.5, 1, [0.8]) in columns
    shares = [(5.69, 87.53, 6.79)]
    assert Calls("7", "rollout", 2.5, "", [0.914024], shares, [b"a1b2c3d4"], [3]) in columns
    assert Operations("7", 0, 2.5, "", [0.06], [MIB], [64], [4], [3]) in columns
    assert Operations("", 0, 1.0, "", [0.06], [253.33 * 0.06 * MIB], [None], [None], []) in columns


def _none(text: bytes, _: Any) -> Usual:
    """As if no line were as usual."""
    return Usual(0, Counter(), [], b"\n".join(line for line in text.split(b"\n") if b"[TQ-" in line))


def _read(path: Path) -> Any:
    sums, losses = Sums(), Losses()
    reader = LogReader(sums, losses)
    reader.read(LogChunks(path))
    reader.finish()
    calls = {
        key: [*(getattr(one, name).as_dict() for name in ("total", "get", "compute", "put")), one.errors]
        for key, one in sums.by_process.items()
    }
    operations = [
        (
            [spread.as_dict() for spread in (one.total, one.size, one.speed, one.rows)],
            one.slow,
            one.errors,
            {key: shape.times.as_dict() for key, shape in one.shapes.kept.items()},
        )
        for one in sums.operations.values()
    ]
    return reader.lines, losses.as_dict(), calls, operations, sums.trace_count


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


@given(
    st.permutations(USUAL),
    st.lists(st.tuples(st.integers(0, 3000), st.sampled_from(PIECES), st.integers(0, 30)), max_size=4),
)
def test_the_same_comes_of_lines_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, log: list[str], changes: list[tuple[int, str, int]]
) -> None:
    text = "\n".join(log)
    for place, put, gone in changes:
        text = text[:place] + put + text[place + gone :]
    path = tmp_path_factory.mktemp("log") / "a.log"
    path.write_text(text)
    together = _read(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "columns_of", _none)
        alone = _read(path)
    assert _rounded(together) == _rounded(alone)


def _rounded(found: Any) -> Any:
    """Sums of the same figures in another order differ in their last digit."""
    if isinstance(found, float):
        return float(f"{found:.9g}")
    if isinstance(found, dict):
        return {key: _rounded(value) for key, value in found.items()}
    return [_rounded(value) for value in found] if isinstance(found, list | tuple) else found
