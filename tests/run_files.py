"""Run files to compare, made of the records of `tests.fakes`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flagscale_perf.spine.jsonl import encode
from flagscale_perf.training.records import Record
from tests.fakes import MS, make_facts, make_header, make_phases, make_step


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
