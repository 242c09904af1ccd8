"""Run files to compare, made of the records of `tests.fakes`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flagscale_perf.spine.clock import boot_id
from flagscale_perf.spine.jsonl import dump, encode
from flagscale_perf.spine.processes import pid_namespace
from flagscale_perf.spine.records import Record
from flagscale_perf.store import evidence
from tests.fakes import MS, make_facts, make_header, make_phases, make_step

NO_PID = 1 << 22  # no process of Linux has so high a one


def left_behind(path: Path, pid: int = NO_PID) -> Path:
    """The run file as if a process of this machine had recorded it, by default one that is gone."""
    first, rest = path.read_bytes().split(b"\n", 1)
    here = {"host": os.uname().nodename, "boot_id": boot_id(), "pid_namespace": pid_namespace()}
    header = json.loads(first) | here | {"pid": pid, "inode": path.stat().st_ino}
    path.write_bytes(dump(header).encode() + b"\n" + rest)
    evidence._looks.clear()  # it has not grown
    return path


def write(path: Path, steps: Sequence[Record], config: dict[str, Any] | None = None, **facts: Any) -> Path:
    """A run file of these records behind a header."""
    records = [make_header(facts=make_facts(**facts), **(config or {})), *steps]
    path.write_bytes(b"".join(map(encode, records)))
    return path


def steady(count: int, more_backward_ms: float = 0, first: int = 1, **overrides: Any) -> list[Record]:
    """Steps of `make_step` and their phases, alternately 1 ms above and below in the forward; the first one
    is a warm-up.
    """
    records: list[Record] = []
    for iteration in range(first, first + count):
        wobble_ns = MS if iteration % 2 else -MS
        added_ns = round(more_backward_ms * MS)
        records.append(make_phases(iteration, forward_ns=18 * MS + wobble_ns, backward_ns=36 * MS + added_ns))
        fields: dict[str, Any] = {
            "iteration_ns": 100 * MS + wobble_ns + added_ns,
            "warmup": int(iteration == first),
        }
        records.append(make_step(iteration, **fields | overrides))
    return records
