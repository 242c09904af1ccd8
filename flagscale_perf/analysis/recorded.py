"""A recorded run file in Python: what it says of itself, and its records one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, overload

from flagscale_perf.analysis.run_file import RunFile
from flagscale_perf.spine.records import Record, RunHeader
from flagscale_perf.spine.session import labels_of

Kind = TypeVar("Kind")


class RecordedFile:
    """One session. Each call reads the file from the beginning, so that a running one is seen as it is now;
    lines that are no records are left out, and `report().reading` says how many they are.

    Attributes:
        path: of the run file.
        header: its first record.
    """

    def __init__(self, path: Path) -> None:
        """Raises PerfError for a file that is no run file, or whose header is of another program's making."""
        self.path = path
        self.header: RunHeader = RunFile(path).header
        labels_of(self.header)

    def __repr__(self) -> str:
        return f"open_run({str(self.path)!r})"

    @overload
    def records(self) -> Iterator[Record]: ...

    @overload
    def records(self, kind: type[Kind]) -> Iterator[Kind]: ...

    def records(self, kind: type[Any] = object) -> Iterator[Any]:
        """Every record in the order of the file, or those of a type of the instrument's module `records`."""
        return (record for record in RunFile(self.path) if isinstance(record, kind))

    def is_live(self) -> bool | None:
        """Whether the session's writer still has the file; None where that cannot be known: a copy, another
        machine's or container's run, a file system without locks.
        """
        return RunFile(self.path).is_live()
