"""Run files of experiments with figures that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flagscale_perf.bench.recording import Book, Clock, Part

FACTS = {
    "machine": "node",
    "processor": "a processor",
    "cores": 2,
    "versions": {"torch": "2.13"},
    "variables": {"NCCL_DEBUG": "WARN"},
}
GB = 10**9


@contextmanager
def book_in(directory: Path, facts: Mapping[str, Any] = FACTS) -> Iterator[Book]:
    with Book.begin(directory, facts) as book:
        yield book


def collective(part: Part, op: str, size: int, samples: Sequence[float], **case: Any) -> None:
    """A point as the ranks send it."""
    whole = {"op": op, "executed": op, "ranks": 4, "size_bytes": size} | case
    part.point("time", "s", whole, samples, Clock(1, 2))


def message(part: Part, ends: tuple[int, int], samples: Sequence[float], size: int = GB, **more: Any) -> None:
    """The same of a message."""
    case = {"op": "send_recv", "src": ends[0], "dst": ends[1], "way": "one way", "size_bytes": size} | more
    part.point("time", "s", case | {"dtype": "float32"}, samples, Clock(1, 2))


def local(part: Part, op: str, rank: int, samples: Sequence[float], moved: int = 2 * GB) -> None:
    """The same of what a rank does alone."""
    case = {"op": op, "rank": rank, "size_bytes": GB, "moved_bytes": moved}
    part.point("time", "s", case, samples, Clock(1, 2))
