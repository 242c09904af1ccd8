"""A recorded session in Python: what it says of itself, and its records one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar, overload

from flagscale_perf.analysis.run_file import check_instrument
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.records import Record, RunHeader
from flagscale_perf.spine.session import labels_of

Kind = TypeVar("Kind")


class Recorded:
    """One session, all machines of its job together. Each call reads it from the beginning, so that a running
    one is seen as it is now; lines that are no records are left out, and `report().reading` says how many
    they are.

    Attributes:
        path: of the run file, the first one of several.
        header: its first record.
    """

    def __init__(self, session: Session, instrument: str) -> None:
        """Raises PerfError for another instrument's session, or a header of another program's making."""
        self._session, self.path = session, session.path
        self.header: RunHeader = session.header
        labels_of(self.header)
        check_instrument(
            self.path, self.header, instrument, f"open_run(..., instrument={session.instrument!r})"
        )

    @overload
    def records(self) -> Iterator[Record]: ...

    @overload
    def records(self, kind: type[Kind]) -> Iterator[Kind]: ...

    def records(self, kind: type[Any] = object) -> Iterator[Any]:
        """Every record in the order of the files, or those of a type of the instrument's module `records`."""
        return self._session.records(kind)

    def is_live(self) -> bool | None:
        """Whether the session's writer still has a file; None where that cannot be known: a copy, another
        machine's or container's run, a file system without locks.
        """
        return self._session.is_live()
