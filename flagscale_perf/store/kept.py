"""What was folded from files once, kept beside them: a second report goes on where the first one stood.

It is believed where this very package wrote it for this user, of files that have not changed since. Nothing
is kept of what is read in a moment.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache as once
from pathlib import Path
from typing import Any

from flagscale_perf.spine.records import KINDS
from flagscale_perf.store import cache, state
from flagscale_perf.store.part import Part

MIN_BYTES = 64 << 20  # that must have been read: of less, to keep what came of it takes as long
_BYTES_A_VALUE = 100  # read for each value that is kept, or more
_ROOT = Path(__file__).parents[1]


class Kept:
    """Of some files, the state of the objects into which they are folded."""

    def __init__(self, paths: Sequence[Path], root: Sequence[Any], whole: Sequence[Part] = ()) -> None:
        """`root`: the objects, just made, first the one that gives the name. Raises TypeError for what cannot
        be kept.
        """
        self._paths, self._root, self._whole, self._had = paths, root, whole, 0
        self._fresh = state.text_of(root)
        self._file = f"{paths[0].name}.{type(root[0]).__name__}.state"
        where = [os.path.relpath(path, paths[0].parent) for path in paths]
        self._key = [where, sorted(KINDS), _digest_of(self._fresh.encode()), code()]

    @classmethod
    def of(cls, paths: Sequence[Path], root: Sequence[Any], is_whole: bool = False) -> Kept | None:
        """None of short files, and where nothing is to be kept. `is_whole`: they are read from now on, and
        what came of them is of no use any more when one grows.
        """
        with contextlib.suppress(OSError, TypeError):
            if cache.IS_ON and sum(path.stat().st_size for path in paths) >= MIN_BYTES:
                return cls(paths, root, [*map(Part.whole, paths)] if is_whole else ())
        return None

    def keep(self, parts: Sequence[Part] = ()) -> None:
        """Keeps what came of these parts of the files, or of the whole ones, if that can be kept and they are
        much more than what was known.
        """
        parts = parts or self._whole
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
                    state.restore(text, self._root)
                except (TypeError, ValueError, LookupError, AttributeError, RecursionError):
                    state.restore(self._fresh, self._root)
                    continue
                self._had = sum(part.size_bytes for part in known)
                return known
        return None

    def _write(self, parts: Sequence[Part], text: str) -> None:
        content = f"{json.dumps([self._key, parts])}\n{text}".encode()
        cache.keep_sealed(self._paths[0], self._file, content)

    def _found(self) -> Iterator[tuple[list[Part], str]]:
        for found in cache.kept_sealed(self._paths[0], self._file):
            head, _, text = found.decode().partition("\n")
            key, parts = json.loads(head)
            if key == self._key:
                yield [*map(Part.of, parts)], text


def _digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@once
def code() -> str:
    """Of this package and the Python that runs it: another one may fold otherwise."""
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(_ROOT.rglob("*.py")):
        digest.update(os.fsencode(path.relative_to(_ROOT)) + b"\0" + path.read_bytes())
    return digest.hexdigest()
