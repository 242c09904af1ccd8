"""The sessions below a directory, and what there cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flagscale_perf.analysis.session import Session
from flagscale_perf.store.runs import Unread
from flagscale_perf.store.strangers import NO_RUN_FILE


@dataclass(frozen=True)
class Listing:
    """The sessions below a directory.

    Attributes:
        directory: where they were looked for.
        sessions: by directory and age.
        unread: files and directories that cannot be read, and what was too much.
    """

    directory: Path
    sessions: list[Session]
    unread: list[Unread]

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
