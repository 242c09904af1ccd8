"""What was folded from files, kept beside them: a second report goes on where the first one stood.

It is believed if this very package kept it for this user, and the files still begin with what went into it.
Nothing is kept of files that are read in a moment.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from flagscale_perf.store import cache, state
from flagscale_perf.store.part import Part

MIN_BYTES = 32 << 20  # less is read again as fast as what came of it is kept
_BYTES_A_VALUE = 100  # of the files, for each value of the state: a larger state would save little


class Kept:
    """The state of the objects into which some files are folded."""

    def __init__(self, paths: Sequence[Path], root: Sequence[Any], whole: Sequence[Part]) -> None:
        """`root`: the objects, just made, first the one that gives the name; `whole`: files that are read to
        their ends. Raises TypeError for what cannot be kept.
        """
        self._paths, self._root, self._whole, self._had = paths, root, whole, 0
        self._fresh = state.text_of(root)
        self._file = f"{paths[0].name}.{type(root[0]).__name__}.state"
        where = [os.path.relpath(path, paths[0].parent) for path in paths]
        self._about = json.dumps([where, self._fresh])

    @classmethod
    def of(cls, paths: Sequence[Path], root: Sequence[Any], may_grow: bool = False) -> Kept | None:
        """None of short files, and where nothing is to be kept. They are read from now on; if one grows, what
        came of them is of no use any more, unless it is the last one and that `may_grow`.
        """
        with contextlib.suppress(OSError, TypeError):
            if cache.IS_ON and sum(path.stat().st_size for path in paths) >= MIN_BYTES:
                return cls(paths, root, [*map(Part.whole, paths[:-1] if may_grow else paths)])
        return None

    def keep(self, *last: Part) -> None:
        """Keeps what came of the files, or of a part of the last one, if that can be kept and they are much
        more than what was known.
        """
        parts = [*self._whole, *last]
        size_bytes = sum(part.size_bytes for part in parts)
        if size_bytes >= self._had + MIN_BYTES:
            with contextlib.suppress(TypeError, RecursionError):
                most = min(state.MOST, size_bytes // _BYTES_A_VALUE)
                self._write(parts, state.text_of(self._root, most))

    def restore(self) -> list[Part] | None:
        """Puts the state back, once; returns the parts of the files that went into it: the last file may have
        got more. None where there is no such state.
        """
        for parts, text in self._found():
            known = [now for part, path in zip(parts, self._paths, strict=True) if (now := part.still(path))]
            if len(known) == len(parts):
                if known != parts and all(any(part.found) for part in known):
                    self._write(known, text)  # now the times prove it again
                try:
                    state.made(text, self._root)
                except (TypeError, ValueError, LookupError, AttributeError, RecursionError):
                    state.made(self._fresh, self._root)
                    continue
                self._had = sum(part.size_bytes for part in known)
                return known
        return None

    def _write(self, parts: Sequence[Part], text: str) -> None:
        content = f"{json.dumps(parts)}\n{text}".encode()
        cache.keep(self._paths[0].parent, self._file, self._about, content)

    def _found(self) -> Iterator[tuple[list[Part], str]]:
        for found in cache.kept(self._paths[0].parent, self._file, self._about):
            parts, _, text = found.decode().partition("\n")
            yield [*map(Part.of, json.loads(parts))], text
