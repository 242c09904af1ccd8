"""The sessions below a directory, and what there cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flagscale_perf.analysis.session import Session
from flagscale_perf.store.part import whole_parts
from flagscale_perf.store.rows import Rows
from flagscale_perf.store.runs import Unread
from flagscale_perf.store.strangers import NO_RUN_FILE


@dataclass(frozen=True)
class Listing:
    """The sessions below a directory.

    Attributes:
        directory: where they were looked for.
        sessions: by directory and age.
        unread: files and directories that cannot be read, and what was too much.
        kept: rows that were made when the directory was listed before.
        is_drawn: whether what a page draws of each session is asked for, too.
        members: of each job that has several, the others beside its leading session, by that one's path.
        where, sort: which are chosen, by conditions such as `tp=2`, and by which key they are sorted.
        is_grouped: a row stands for all of one configuration.
        origin: directory that links to pages begin at; None for `directory`.
    """

    directory: Path
    sessions: list[Session]
    unread: list[Unread]
    kept: Rows | None = None
    is_drawn: bool = True
    members: Mapping[Path, Sequence[Session]] = field(default_factory=dict)
    where: Sequence[str] = ()
    sort: str | None = None
    is_grouped: bool = False
    origin: Path | None = None

    def row(self, session: Session, make: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any]:
        """What `make` makes of a whole session and of those beside it: its row, and what a page draws
        besides, both ready for JSON; it is called only where they were not kept. Raises PerfError.
        """
        sessions = self.job(session)
        paths = [path for one in sessions for path in one.paths]
        found = self.kept.get(paths) if self.kept else None
        if found is not None:
            (is_over, row), besides = found
            if is_over or all(one.is_live() is False for one in sessions):
                return row, besides() if self.is_drawn else None
        parts = whole_parts(paths)
        row, besides = make()
        is_over = all(one.course.is_over for one in sessions)
        if self.kept and parts and (is_over or all(one.is_live() is False for one in sessions)):
            self.kept.put(paths, parts, [is_over, row], besides)
        return row, besides

    def job(self, session: Session) -> list[Session]:
        """The session, which leads one, and those beside it."""
        return [session, *self.members.get(session.path, ())]

    def beside(self, session: Session) -> list[str]:
        """Instruments that recorded something of the same job."""
        return sorted({one.instrument for one in self.members.get(session.path, ())})

    def relative(self, path: Path) -> str:
        """The path as seen from the directory."""
        return str(path.relative_to(self.directory))

    def place(self, session: Session) -> str:
        """The directory of its files, as seen from there; "" for that itself."""
        place = self.relative(session.path.parent)
        return "" if place == "." else place

    def leave_out(self, path: Path, error: Exception) -> None:
        """Notes that a file cannot be read."""
        reason = str(error).replace(f"{path}:", "line ", 1).removesuffix(f"; {NO_RUN_FILE}")
        self.unread.append(Unread(self.relative(path), reason))
