"""Each run of each operator and module, in a file beside the run file: columns that numpy writes and reads.

A million of them as records would fill a ring for seconds; as columns they are 42 bytes each, 50 where there
is a device. A window names its file (`WindowRecord.calls`).
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flagscale_perf.profile.events import Kernels
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import make_directory, open_regular, replace_file
from flagscale_perf.spine.session import COLUMNS_PREFIX, COLUMNS_SUFFIX

MOST_BYTES = 256 << 20  # of one process, in all of its files
Ints = NDArray[np.int64]
# Of each run: number of the step's record; part of the step, module and operator as numbers of texts; which
# run of that operator in that module and part of the step, from 0; times, `self_ns` without what it calls.
COLUMNS: dict[str, Any] = {
    "step": np.int32,
    "part": np.int16,
    "module": np.int32,
    "op": np.int32,
    "ordinal": np.int32,
    "start_ns": np.int64,
    "duration_ns": np.int64,
    "self_ns": np.int64,
}
DEVICE: dict[str, Any] = {"device_ns": np.int64}  # of each run's kernels, where there is a device
# Of each kernel, where there is a device: number of the step's record, number of the name's text, its stream.
KERNELS: dict[str, Any] = {
    "kernel_step": np.int32,
    "kernel_name": np.int32,
    "kernel_stream": np.int32,
    "kernel_start_ns": np.int64,
    "kernel_duration_ns": np.int64,
}


@dataclass(frozen=True)
class StepCalls:
    """The runs of one step, in time order; `part`, `module` and `op` are indexes into the texts.

    Attributes:
        parts, modules, ops: texts; op "" for the forward pass of a module, whose own time is Python.
        device_ns, kernels: None without a device.
    """

    parts: Sequence[str]
    modules: Sequence[str]
    ops: Sequence[str]
    part: Ints
    module: Ints
    op: Ints
    ordinal: Ints
    start_ns: Ints
    duration_ns: Ints
    self_ns: Ints
    kernels: Kernels | None = None
    device_ns: Ints | None = None

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True)
class Calls:
    """The calls of one window, as in its file.

    Attributes:
        names: texts.
        columns: by the names in `COLUMNS`, and those in `DEVICE` where there is a device; `part`, `module`
            and `op` are indexes into `names`.
        kernels: by the names in `KERNELS`; empty without a device.
    """

    names: Sequence[str]
    columns: Mapping[str, NDArray[Any]]
    kernels: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns["step"])

    def distinct(self, *columns: str) -> tuple[list[tuple[int, ...]], Ints]:
        """Each different row of these columns once, and for each run the index of its row."""
        values = tuple(self.columns[name].astype(np.int64) for name in columns)
        sizes = tuple(int(each.max(initial=0)) + 1 for each in values)
        found, place = np.unique(np.ravel_multi_index(values, sizes), return_inverse=True)
        rows = zip(*(each.tolist() for each in np.unravel_index(found, sizes)), strict=True)
        return list(rows), place


@dataclass
class CallFiles:
    """Writes a file for each window of this process, up to `most_bytes` in all.

    Attributes:
        directory: where the run file is.
        written: bytes so far.
    """

    directory: Path
    most_bytes: int = MOST_BYTES
    written: int = 0
    _count: int = field(default=0, init=False)

    def write(self, steps: Sequence[tuple[int, StepCalls]]) -> str:
        """Writes the calls of a window's steps, each with the number of its record, and returns the file's
        name; "" if there is nothing to write or no room left. Raises OSError.
        """
        if not any(len(calls) for _, calls in steps):
            return ""
        packed = _packed(steps)
        if self.written + len(packed) > self.most_bytes:
            return ""
        self._count += 1
        # no other process has this name: it is of this moment, machine and process
        begin_ns = min(int(calls.start_ns[0]) for _, calls in steps if len(calls))
        name = f"{COLUMNS_PREFIX}{os.uname().nodename}_{os.getpid()}_{begin_ns}_{self._count}{COLUMNS_SUFFIX}"
        make_directory(self.directory)
        replace_file(self.directory / name, packed)
        self.written += len(packed)
        return name


def _packed(steps: Sequence[tuple[int, StepCalls]]) -> bytes:
    names: dict[str, int] = {}

    def numbers(texts: Sequence[str]) -> Ints:
        return np.array([names.setdefault(text, len(names)) for text in texts], np.int64)

    kinds = COLUMNS | DEVICE | KERNELS
    columns: dict[str, Any] = {name: [] for name in kinds}
    for number, calls in steps:
        if calls.device_ns is not None:
            columns["device_ns"].append(calls.device_ns)
        if calls.kernels is not None:
            columns["kernel_step"].append(np.full(len(calls.kernels.start_ns), number))
            columns["kernel_name"].append(numbers(calls.kernels.names)[calls.kernels.name])
            for name in ("stream", "start_ns", "duration_ns"):
                columns[f"kernel_{name}"].append(getattr(calls.kernels, name))
        columns["step"].append(np.full(len(calls), number))
        columns["part"].append(numbers(calls.parts)[calls.part])
        columns["module"].append(numbers(calls.modules)[calls.module])
        columns["op"].append(numbers(calls.ops)[calls.op])
        for name in ("ordinal", "start_ns", "duration_ns", "self_ns"):
            columns[name].append(getattr(calls, name))
    arrays: dict[str, Any] = {
        name: np.concatenate(parts).astype(kinds[name]) for name, parts in columns.items() if parts
    }
    file = io.BytesIO()
    np.savez(file, names=np.frombuffer("\n".join(names).encode(), np.uint8), **arrays)
    return file.getvalue()


def read_calls(path: Path) -> Calls:
    """Reads the calls of one window. Raises PerfError for a file that is missing or damaged."""
    if not path.name.startswith(COLUMNS_PREFIX):
        raise PerfError(
            f"{path.name!r} is not a file of operators' runs: its name begins with {COLUMNS_PREFIX!r}"
        )
    try:
        with open(open_regular(path), "rb") as file, zipfile.ZipFile(file) as packed:
            names = bytes(_column(packed, "names", np.uint8)).decode().split("\n")
            device = DEVICE if "device_ns.npy" in packed.namelist() else {}
            columns = {name: _column(packed, name, dtype) for name, dtype in (COLUMNS | device).items()}
            kinds = KERNELS if "kernel_step.npy" in packed.namelist() else {}
            kernels = {name: _column(packed, name, dtype) for name, dtype in kinds.items()}
        _check(columns, ("part", "module", "op"), len(names))
        _check(kernels, ("kernel_name",), len(names))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, NotImplementedError, MemoryError) as error:
        raise PerfError(f"{path}: the runs of operators cannot be read ({error})") from None
    return Calls(names, columns, kernels)


def _check(columns: Mapping[str, NDArray[Any]], texts: Sequence[str], names: int) -> None:
    """Raises ValueError for columns of several lengths, or with numbers of texts that there are not."""
    of_texts = [columns[name] for name in texts if name in columns]
    if len({len(column) for column in columns.values()}) > 1 or any(
        len(one) and not 0 <= one.min() <= one.max() < names for one in of_texts
    ):
        raise ValueError("its columns do not fit each other")


def _column(packed: zipfile.ZipFile, name: str, dtype: Any) -> NDArray[Any]:
    """A column as `_packed` writes it, so no larger than the file. Raises ValueError otherwise, KeyError."""
    member = packed.getinfo(f"{name}.npy")
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed, which no file of ours is")
    with packed.open(member) as file:
        found: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    if found.ndim != 1 or found.dtype != dtype:
        raise ValueError(f"{name} has {found.ndim} dimensions of {found.dtype}")
    return found
