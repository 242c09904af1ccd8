"""Files that are called as run files are, also those that cannot be read."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from flagscale_perf.analysis.instrument import installed, load
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.session import age_of, labels_of, new_session_id, session_of
from flagscale_perf.store.run_file import RunFile


class Found(NamedTuple):
    """A file that is called as a run file is: what it is, and why it cannot be read here."""

    path: Path
    run: RunFile | None
    trouble: PerfError | None = None

    @property
    def age(self) -> tuple[int, str, int, str]:
        """Sorts from old to new."""
        return age_of(self.path, self.run.header if self.run else None)


def find(path: Path) -> Found:
    """The file opened, or why it cannot be."""
    run = None
    try:
        run = RunFile(path)
        if run.header.instrument not in installed():
            load(run.header.instrument)  # says what to do
        return Found(path, run)
    except PerfError as error:
        return Found(path, run, error)


def began_in(unread: Found, *files: RunFile) -> bool:
    """Whether one that cannot be read began while one of these was written; without a header by its name."""
    if unread.run is not None:
        begun_ns = unread.run.header.start_wall_ns
        return any(file.header.start_wall_ns <= begun_ns <= file.ended_ns for file in files)
    begun = session_of(unread.path.name)
    for file in files:
        with suppress(PerfError, OverflowError):
            labels = labels_of(file.header)
            first, last = (
                new_session_id(labels.at(ns), 1) for ns in (file.header.start_wall_ns, file.ended_ns)
            )
            if begun is not None and first <= begun and begun[: len(last)] <= last:
                return True
    return False
