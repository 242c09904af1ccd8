"""Each run of each operator in a file beside the run file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from flagscale_perf.profile.calls import COLUMNS, CallFiles, StepCalls, read_calls
from flagscale_perf.spine.errors import PerfError


def of_step(*runs: tuple[int, int, int]) -> StepCalls:
    """Each run: index of its operator, start and duration; all of module m in the forward."""
    columns = np.array(runs, np.int64).reshape(-1, 3)
    zeros = np.zeros(len(columns), np.int64)
    return StepCalls(
        parts=["other", "forward"],
        modules=["", "m"],
        ops=["", "aten::mm", "aten::add"],
        part=zeros + 1,
        module=zeros + 1,
        op=columns[:, 0],
        ordinal=np.arange(len(columns)),
        start_ns=columns[:, 1],
        duration_ns=columns[:, 2],
        self_ns=columns[:, 2] - 1,
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    name = CallFiles(tmp_path / "new").write(
        [(7, of_step((1, 100, 50), (2, 160, 5))), (9, of_step((1, 900, 40)))]
    )
    found = read_calls(tmp_path / "new" / name)
    rows = [
        (step, *(found.names[number] for number in texts), *numbers)
        for step, *texts, numbers in zip(
            *(found.columns[one].tolist() for one in ("step", "part", "module", "op")),
            zip(*(found.columns[one].tolist() for one in list(COLUMNS)[4:]), strict=True),
            strict=True,
        )
    ]
    assert rows == [
        (7, "forward", "m", "aten::mm", 0, 100, 50, 49),
        (7, "forward", "m", "aten::add", 1, 160, 5, 4),
        (9, "forward", "m", "aten::mm", 0, 900, 40, 39),
    ]


def test_files_together_have_a_bound(tmp_path: Path) -> None:
    files = CallFiles(tmp_path, most_bytes=5000)
    first, *others = (files.write([(1, of_step((1, number, 1)))]) for number in range(9))
    assert first and not others[-1]
    assert files.written == sum(path.stat().st_size for path in tmp_path.iterdir()) <= 5000


def test_nothing_is_no_file(tmp_path: Path) -> None:
    assert CallFiles(tmp_path).write([(1, of_step())]) == ""
    assert list(tmp_path.iterdir()) == []


def test_42_bytes_a_run(tmp_path: Path) -> None:
    runs = [(1, number, 1) for number in range(10_000)]
    name = CallFiles(tmp_path).write([(1, of_step(*runs))])
    assert 420_000 < (tmp_path / name).stat().st_size < 424_000


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("perf_calls_a.npz", None, "cannot be read"),
        ("perf_calls_a.npz", b"PK damaged", "cannot be read"),
        ("other.npz", b"", "is not a file of operators' runs"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(PerfError, match=said):
        read_calls(tmp_path / name)


def test_columns_that_do_not_fit_each_other(tmp_path: Path) -> None:
    path = tmp_path / "perf_calls_a.npz"
    columns = {name: np.zeros(2, kind) for name, kind in COLUMNS.items()}
    columns["op"][1] = 5  # there are two names
    np.savez(path, names=np.frombuffer(b"\nm", np.uint8), **columns)
    with pytest.raises(PerfError, match="its columns do not fit each other"):
        read_calls(path)


def _saved(path: Path, column: object, compressed: bool = False) -> None:
    save = np.savez_compressed if compressed else np.savez
    names = np.frombuffer(b"a", np.uint8)
    with path.open("wb") as file:
        save(file, names=names, **{name: np.array(column, dtype) for name, dtype in COLUMNS.items()})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (os.mkfifo, "is not a regular file"),
        (lambda path: _saved(path, [0], compressed=True), "names is compressed"),
        (lambda path: _saved(path, [[0]]), "step has 2 dimensions of int32"),
        (lambda path: _saved(path, 0), "step has 0 dimensions of int32"),
        (lambda path: np.save(path.open("wb"), np.zeros(3)), "is not a zip file"),
    ],
    ids=["a pipe", "compressed", "a matrix", "a number", "an array"],
)
def test_what_is_no_file_of_ours_is_refused_unread(
    tmp_path: Path, make: Callable[[Path], None], said: str
) -> None:
    path = tmp_path / "perf_calls_x.npz"
    make(path)
    with pytest.raises(PerfError, match=said):
        read_calls(path)
