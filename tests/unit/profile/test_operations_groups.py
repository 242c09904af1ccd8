"""Process groups as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.profile.operations import Group


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((0, 1), "TP 0-1"),
        ((3,), "TP 3"),
        (tuple(range(8)), "TP 0-7"),
        ((0, 4, 8, 12), "TP 0-12/4"),
        ((0, 2), "TP 0-2/2"),
        ((0, 1, 6), "TP 0-1,6"),
        ((1, 0), "TP 1,0"),
    ],
)
def test_ranks_are_short(ranks: tuple[int, ...], text: str) -> None:
    assert str(Group("TP", ranks)) == text
    assert Group.parse(text) == Group("TP", ranks)


@given(st.lists(st.integers(0, 50), min_size=1, unique=True))
def test_what_was_written_is_read(ranks: list[int]) -> None:
    group = Group("a name of words", tuple(ranks))
    assert Group.parse(str(group)) == group


@pytest.mark.parametrize("name", ["", "default_pg", "with words", "group #3"])
def test_a_group_whose_ranks_nobody_knows(name: str) -> None:
    assert Group.parse(str(Group(name))) == Group(name)
