"""Rows of a list of sessions, kept together for the directory that is listed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flagscale_perf.store import cache
from flagscale_perf.store.part import Part

MIN_BYTES = 4 << 20  # of the files whose rows are new: less is read in a moment
_FILE = "runs"
_LINES = 3  # of each: its files; what they were, and its row; what there is besides


class Rows:
    """What was made of the run files of each session below a directory: a row, and what is not always needed
    besides, both ready for JSON.
    """

    def __init__(self, directory: Path) -> None:
        """With the rows that were kept when it was listed before."""
        self._directory = directory
        self._listed: dict[bytes, list[bytes]] = {}
        self._new_bytes = 0
        lines = next(cache.kept(directory, _FILE, ""), b"").splitlines()
        self._kept = {lines[at]: lines[at + 1 : at + _LINES] for at in range(0, len(lines), _LINES)}

    def get(self, paths: Sequence[Path]) -> tuple[Any, Callable[[], Any]] | None:
        """The row of a session with these files and what is besides; None where a file is not as it was."""
        lines = self._kept.get(self._name(paths))
        if lines is None:
            return None
        parts, row = json.loads(lines[0])
        for part, path in zip(parts, paths, strict=True):
            if Part.of(part).still(path) is None:
                return None
        self._listed[self._name(paths)] = lines
        return row, partial(json.loads, lines[1])

    def put(self, paths: Sequence[Path], parts: Sequence[Part], row: Any, besides: Any) -> None:
        """Adds the row of a session. `parts`: its files as they were before they were read."""
        lines = [json.dumps(each, separators=(",", ":")).encode() for each in ([parts, row], besides)]
        self._listed[self._name(paths)] = lines
        self._new_bytes += sum(part.size_bytes for part in parts)

    def keep(self, is_all: bool = True) -> None:
        """Keeps the rows that were asked for or added, if there is much that is new; others are forgotten
        where these are all there is.
        """
        if self._new_bytes >= MIN_BYTES:
            listed = self._listed if is_all else self._kept | self._listed
            lines = [line for name, both in listed.items() for line in (name, *both)]
            cache.keep(self._directory, _FILE, "", b"\n".join(lines))

    def _name(self, paths: Sequence[Path]) -> bytes:
        return json.dumps([str(path.relative_to(self._directory)) for path in paths]).encode()
