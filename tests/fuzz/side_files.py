"""One damaged file of operators' runs beside a profile's run file, through the commands that read both."""

from __future__ import annotations

import io
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from flagscale_perf.profile.calls import COLUMNS, CallFiles
from tests.fuzz.mutations import flip_bytes, truncate
from tests.fuzz.target import NAME, Finding, findings_of
from tests.profile_runs import make_profile
from tests.unit.profile.test_calls import of_step

SIDE = "perf_calls_fuzz.npz"
EXTREMES = (-(2**63), 2**63 - 1, -1, 0, 2**31, 2**62)


def whole(directory: Path) -> bytes:
    """A file of runs as a rank writes it."""
    name = CallFiles(directory).write([(1, of_step((1, 100, 50), (2, 160, 5))), (3, of_step((1, 900, 40)))])
    content = (directory / name).read_bytes()
    (directory / name).unlink()
    return content


def run_file() -> bytes:
    """Of a profile whose window names the file of runs."""
    job = make_profile()
    job.window(1, calls=SIDE)
    return job.content()


def damaged(seed: int, content: bytes) -> bytes:
    """The content with damage that follows from the seed: of the archive, or of a column in a good one."""
    chance = random.Random(seed)
    if chance.random() < 0.4:
        return chance.choice((flip_bytes, truncate))(chance, content)
    with np.load(io.BytesIO(content)) as found:
        columns = dict(found)
    name = chance.choice((*COLUMNS, "names"))
    columns[name] = chance.choice(_COLUMNS)(chance, columns[name])
    made = io.BytesIO()
    chance.choice((np.savez, np.savez, np.savez_compressed))(made, **columns)
    return made.getvalue()


def _extremes(chance: random.Random, column: Any) -> Any:
    changed = column.astype(np.int64)
    changed[chance.randrange(len(changed))] = chance.choice(EXTREMES)
    return changed.astype(column.dtype)


_COLUMNS: tuple[Callable[[random.Random, Any], Any], ...] = (
    _extremes,
    _extremes,
    lambda chance, column: column[: chance.randrange(len(column))],
    lambda chance, column: column.reshape(1, -1),
    lambda chance, column: column.astype(chance.choice((np.float64, np.uint8, np.int64, "U3"))),
    lambda chance, column: np.zeros(0, column.dtype),
    lambda chance, column: np.array([b"\x1b[2J"] * len(column)),
)


def inflating(path: Path, claimed: int = 1 << 40) -> None:
    """A column whose header claims so many values, in an archive of 1 kB."""
    with zipfile.ZipFile(path, "w") as packed:
        for name, kind in {
            "names": np.dtype(np.uint8),
            **{n: np.dtype(k) for n, k in COLUMNS.items()},
        }.items():
            head = io.BytesIO()
            np.lib.format.write_array_header_1_0(
                head, {"descr": kind.str, "fortran_order": False, "shape": (claimed,)}
            )
            packed.writestr(f"{name}.npy", head.getvalue())


def compressed(path: Path) -> None:
    """300 MB of zeros in 300 kB."""
    np.savez_compressed(
        path,
        names=np.zeros(300 << 20, np.uint8),
        **{name: np.zeros(1, kind) for name, kind in COLUMNS.items()},
    )


SPECIAL: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a column that claims 10^12 values": inflating,
    "300 MB in 300 kB": compressed,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
}


def side_findings(content: bytes, directory: Path) -> list[Finding]:
    """Of the content as the file of runs; the directory is used again and again."""
    path = directory / NAME
    path.write_bytes(run_file())
    (directory / SIDE).write_bytes(content)
    return findings_of(path, len(content))
