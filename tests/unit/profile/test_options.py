"""What is profiled, as words."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.arguments import PerfConfig, unknown_variables
from flagscale_perf.profile.options import ProfileOptions, Steps, options_of
from flagscale_perf.spine.errors import PerfError


def test_another_process_is_told_the_same_by_its_environment(tmp_path: Path) -> None:
    options = ProfileOptions(Steps(2, 4, 10), tmp_path, "job", "0,2-3", 2, False, False)
    assert ProfileOptions.of(options.variables) == options
    assert [options.wants(rank) for rank in range(4)] == [True, False, True, True]


def test_the_monitors_options_say_what_is_profiled_beside_its_files(tmp_path: Path) -> None:
    config = PerfConfig(
        perf_log_dir=str(tmp_path),
        perf_profile_steps="20-22/100",
        perf_profile_ranks="0,2-3",
        perf_profile_clean=0,
        perf_profile_shapes=False,
        perf_profile_memory=False,
    )
    assert options_of(config, "job") == ProfileOptions(
        Steps(20, 22, 100), tmp_path, "job", "0,2-3", 0, False, False
    )
    assert not options_of(PerfConfig()).is_on


def test_every_variable_of_its_own_is_known_to_the_monitor(tmp_path: Path) -> None:
    assert unknown_variables(ProfileOptions(None, tmp_path).variables) == {}


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


def test_a_directory_is_a_text_or_a_path_and_nothing_else() -> None:
    assert ProfileOptions(Steps(2, 4), "logs/x").directory == Path("logs/x").absolute()  # type: ignore[arg-type]
    for wrong in (3, None, ""):
        with pytest.raises(PerfError, match=r"directory is .*; give a path, for example 'logs/run1'"):
            ProfileOptions(Steps(2, 4), wrong)  # type: ignore[arg-type]
