"""What is profiled, as words."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.profile.options import ProfileOptions, Steps, parse_ranks
from flagscale_perf.spine.errors import PerfError


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
    with pytest.raises(PerfError, match="'3-1' are no ranks"):
        parse_ranks("3-1")


def test_another_process_is_told_the_same_by_its_environment(tmp_path: Path) -> None:
    options = ProfileOptions(Steps(2, 4, 10), tmp_path, "job", "0,2-3", 2, False, False, True)
    assert ProfileOptions.of(options.variables) == options
    assert [options.wants(rank) for rank in range(4)] == [True, False, True, True]


def test_nothing_is_profiled_unless_it_is_asked_for() -> None:
    options = ProfileOptions.of({})
    assert not options.is_on
    assert options.wants(7)


@pytest.mark.parametrize(
    ("name", "value"), [("STEPS", "now"), ("CLEAN", "-1"), ("RANKS", "a"), ("MEMORY", "perhaps")]
)
def test_what_cannot_be_meant_is_refused(name: str, value: str) -> None:
    with pytest.raises(PerfError, match=repr(value)):
        ProfileOptions.of({f"FLAGSCALE_PERF_PROFILE_{name}": value})
