"""Steps and ranks as a user writes them."""

from __future__ import annotations

import pytest

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.steps import Steps, parse_ranks


@pytest.mark.parametrize(
    ("text", "steps"),
    [("20", Steps(20, 20)), ("20-22", Steps(20, 22)), (" 20-22/100 ", Steps(20, 22, 100))],
)
def test_steps(text: str, steps: Steps) -> None:
    assert Steps.parse(text) == steps
    assert Steps.parse(str(steps)) == steps


@pytest.mark.parametrize("text", ["", "x", "0", "0-3", "5-4", "1-10/9", "1-2-3", "-3"])
def test_what_are_no_steps_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(PerfError, match=repr(text)):
        Steps.parse(text)


def test_ranks() -> None:
    assert parse_ranks("0,2-3") == {0, 2, 3}
    assert parse_ranks("") == frozenset()
    with pytest.raises(PerfError, match="'3-1' is not a list of ranks"):
        parse_ranks("3-1")
