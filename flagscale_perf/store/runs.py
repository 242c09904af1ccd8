"""The run files below a directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.session import CACHE, age_of, session_of

MAX_DEPTH = 8
MAX_DIRECTORIES = 20_000
MAX_RUNS = 5000
LONG_BYTES = 16 << 20  # a longer run file is read whole for a list only when all are to be
NEAR_DEPTH, NEAR_DIRECTORIES, MAX_NEAR = 4, 1000, 5  # where a directory without runs was given
# Directories of packages: large, and without runs. Python's environments have this file.
_ENVIRONMENT = "pyvenv.cfg"
_PACKAGES = frozenset({"node_modules", "site-packages", "__pycache__"})
_PREFIX, _SUFFIX = "perf_records_", ".jsonl"


@dataclass(frozen=True)
class Unread:
    """A path that a list leaves out, relative to its directory, and why."""

    path: str
    reason: str


def find_runs(directory: Path, most: int = MAX_RUNS) -> tuple[list[Path], list[Unread]]:
    """By directory and name, every file that is called as a run file is, `MAX_DEPTH` directories deep, and
    what was not looked into. Links and hidden directories are not followed, and neither are Python
    environments, directories of packages and what is kept beside run files. Raises PerfError where there is
    none.
    """
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise PerfError(f"{str(directory)!r} {what}; give one that has --perf-log-dir directories below it")
    unread: list[Unread] = []
    # who takes more runs has as many directories of them
    paths = list(_files(directory, unread, MAX_DEPTH, max(MAX_DIRECTORIES, most)))
    if not paths:
        raise PerfError(
            f"no {_PREFIX}*{_SUFFIX} in or below {str(directory)!r}; give a directory that has"
            " --perf-log-dir directories below it"
        )
    if len(paths) > most:
        paths.sort(key=age_of, reverse=True)
        unread.append(Unread(".", f"only the newest {most:,} of {len(paths):,} are listed"))
        del paths[most:]
    return sorted(paths, key=lambda path: (path.parent, path.name)), unread


def files_near(directory: Path) -> list[Path]:
    """Files that are called as run files are, in it and right below it; looked for as by `find_runs`."""
    return sorted(_files(directory, [], 1, MAX_DIRECTORIES), key=lambda path: (len(path.parts), path))


def runs_below(directory: Path) -> list[Path]:
    """Directories below it that have run files of sessions: the first few, in the order of their names."""
    found: dict[Path, None] = {}
    for path in _files(directory, [], NEAR_DEPTH, NEAR_DIRECTORIES):
        if path.parent != directory and session_of(path.name):
            found[path.parent] = None
        if len(found) == MAX_NEAR:
            break
    return list(found)


def _files(directory: Path, unread: list[Unread], deepest: int, most: int) -> Iterator[Path]:
    waiting, looked_into = [(directory, 0)], 0
    too_deep: list[Path] = []
    while waiting:
        place, depth = waiting.pop()
        looked_into += 1
        if looked_into > most:
            unread.append(Unread(".", f"only {most:,} directories were looked into"))
            break
        try:
            entries = _entries(place, is_top=depth == 0)
        except OSError as error:
            unread.append(Unread(str(place.relative_to(directory)), error.strerror or str(error)))
            continue
        found = [Path(entry.path) for entry in entries if _is_called_as_run(entry)]
        # a dozen directories below it for each run would use up how many are looked into
        kept = CACHE if found else None
        below = [Path(entry.path) for entry in entries if entry.name != kept and _may_have_runs(entry)]
        yield from found
        if depth < deepest:
            waiting += ((path, depth + 1) for path in reversed(below))
        else:
            too_deep += below
    if too_deep:
        unread.append(_too_deep([str(path.relative_to(directory)) for path in too_deep], deepest))


def _entries(place: Path, is_top: bool) -> list[os.DirEntry[str]]:
    """Entries by name; none of an environment, unless it is the directory that was given."""
    entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    is_environment = any(entry.name == _ENVIRONMENT for entry in entries)
    return [] if is_environment and not is_top else entries


def _too_deep(paths: Sequence[str], deepest: int) -> Unread:
    others = f", like {len(paths) - 1:,} more" if len(paths) > 1 else ""
    return Unread(paths[0], f"deeper than {deepest} directories{others}; give one further down")


def _may_have_runs(entry: os.DirEntry[str]) -> bool:
    is_hidden = entry.name.startswith(".") or entry.name in _PACKAGES
    return entry.is_dir(follow_symlinks=False) and not is_hidden


def _is_called_as_run(entry: os.DirEntry[str]) -> bool:
    is_run = entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX)
    return is_run and not entry.is_dir(follow_symlinks=False)
