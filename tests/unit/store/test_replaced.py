"""Tables that others have replaced go, and looking for them does not take ever longer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from flagscale_perf.store import replaced
from flagscale_perf.store.cache import Place
from flagscale_perf.store.replaced import Replaced

KINDS = ("header", "step")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, ("cache",))


def make(place: Place, name: str, *kinds: str) -> list[Path]:
    paths = [place.path / f"kind={kind}/host=node0/part={name}.parquet" for kind in kinds or KINDS]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return paths


def left(place: Place) -> set[str]:
    return {path.stem.removeprefix("part=") for path in place.path.rglob("*.parquet")}


@contextmanager
def entries_listed() -> Iterator[list[int]]:
    """How many entries each listing of a directory had."""
    counts: list[int] = []
    listed = os.listdir

    def counted(directory: Path) -> list[str]:
        found = listed(directory)
        counts.append(len(found))
        return found

    with patch.object(replaced.os, "listdir", counted):
        yield counts


def test_of_two_thousand_files_in_one_directory_each_table_is_looked_at_a_few_times(place: Place) -> None:
    for number in range(2000):
        make(place, f"{number}-0123-old", "step")
    with entries_listed() as counts, Replaced() as tables:
        for number in range(2000):
            tables.by(place, f"part={number}", make(place, f"{number}-0123-new"))
    assert len(left(place)) == 2000 and all(name.endswith("-new") for name in left(place))
    assert sum(counts) < 40 * 6000  # each time would be 2000 * 6000


def test_what_is_killed_midway_leaves_a_tenth_behind(place: Place) -> None:
    for number in range(1000):
        make(place, f"{number}-0123-old")
    tables = Replaced()
    for number in range(1000):
        tables.by(place, f"part={number}", make(place, f"{number}-0123-new"))
    assert sum(name.endswith("-old") for name in left(place)) <= 150


def test_no_other_files_tables_go(place: Place) -> None:
    others = ("a-0123-old-12", "aa-0123-old", "a%2Db-0123-old", "a")
    for name in ("a-0123-old", "a-4567-old", *others[1:]):
        make(place, name)
    with Replaced() as tables:
        tables.by(place, "part=a", [*make(place, "a-0123-new"), *make(place, "a-0123-new-12", "run")])
        tables.by(place, "part=a-0123-new", make(place, "a-0123-new-12", "run"))
    assert left(place) == {"a-0123-new", "a-0123-new-12", *others[1:]}


def test_of_one_kind_those_of_a_run(place: Place) -> None:
    for name in ("perf_ranks_1%2E0-0123-a", "perf_ranks_1%2E1-0123-a", "perf_ranks_1%2E0-4567-a"):
        make(place, name, "every_rank")
    make(place, "a-0123-b", "step")
    with Replaced() as tables:
        tables.by_run(place, "every_rank", "0123", make(place, "perf_ranks_1%2E1-0123-c", "every_rank"))
    assert left(place) == {"perf_ranks_1%2E1-0123-c", "perf_ranks_1%2E0-4567-a", "a-0123-b"}


def test_they_go_where_what_is_done_with_them_fails(place: Place) -> None:
    make(place, "a-0123-old")
    make(place, "b-0123-old")
    with pytest.raises(KeyboardInterrupt), Replaced() as tables:
        for name in "ab":
            tables.by(place, f"part={name}", make(place, f"{name}-0123-new"))
        raise KeyboardInterrupt
    assert left(place) == {"a-0123-new", "b-0123-new"}
