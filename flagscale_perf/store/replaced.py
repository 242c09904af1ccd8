"""Removes tables that others have replaced: other programs would take their rows for more of the same.

To find them, all tables of a place are looked through: not for each file, which would take ever longer the
more there are, but whenever a share of as many has been made, so that who is killed leaves few behind.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import accumulate, chain
from pathlib import Path

from flagscale_perf.store.cache import Place, sweep

_Whose = tuple[str, str]  # kind, or "*" for any, and what names have in common
SHARE = 0.1  # of the tables that there were at the last look
_SUFFIX = ".parquet"


class Replaced:
    """Those of some files; all are gone at the end of a `with` block."""

    def __init__(self) -> None:
        self._kept = defaultdict[Place, dict[_Whose, set[str]]](dict)
        self._made, self._seen = Counter[Place](), Counter[Place]()

    def __enter__(self) -> Replaced:
        return self

    def __exit__(self, *_: object) -> None:
        for place in {*self._kept, *self._seen}:
            self._look(place)
            sweep(place)

    def by(self, place: Place, begin: str, paths: Iterable[Path]) -> None:
        """Notes tables of any kinds that have just been made: of all others whose names begin so, up to a
        hyphen, none is to stay.
        """
        self._note(place, ("*", begin), paths)

    def by_run(self, place: Place, kind: str, run: str, paths: Iterable[Path]) -> None:
        """The same, of this kind, of all others that have the run's name between their first hyphens."""
        self._note(place, (kind, run), paths)

    def _note(self, place: Place, whose: _Whose, paths: Iterable[Path]) -> None:
        made = {*map(str, paths)}
        self._kept[place].setdefault(whose, set()).update(made)
        self._made[place] += len(made)
        if self._made[place] > SHARE * self._seen[place]:
            self._look(place)

    def _look(self, place: Place) -> None:
        kept, self._made[place] = self._kept.pop(place, {}), 0
        kinds = {kind for kind, _ in kept}
        tables = [*chain.from_iterable(_tables(place, kind) for kind in ({"*"} if "*" in kinds else kinds))]
        self._seen[place] = len(tables)
        for kind, path in tables:
            found = [kept[whose] for whose in _whose(kind, path.name) if whose in kept]
            if found and not any(str(path) in each for each in found):
                with suppress(OSError):
                    path.unlink()


def _tables(place: Place, kind: str) -> Iterator[tuple[str, Path]]:
    for directory in place.path.glob(f"kind={kind}/*"):
        with suppress(OSError):
            for name in os.listdir(directory):
                if name.endswith(_SUFFIX):
                    yield directory.parent.name.removeprefix("kind="), directory / name


def _whose(kind: str, name: str) -> list[_Whose]:
    parts = name.removesuffix(_SUFFIX).split("-")
    begins = accumulate(parts[:-1], lambda begin, part: f"{begin}-{part}")
    return [*(("*", begin) for begin in begins), *((kind, run) for run in parts[1:2])]
