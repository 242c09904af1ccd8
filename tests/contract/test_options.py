"""One set of options: the fields of PerfConfig are the flags and the keys of the shipped configuration."""

import argparse
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from flagscale_perf.arguments import PerfConfig, add_perf_arguments
from flagscale_perf.options.table import rows_of

REPO = Path(__file__).parents[2]
OPTIONS = {row.name: row.default for row in rows_of(PerfConfig).values()}
TASKS = sorted(path.stem for path in (REPO / "conf/train").glob("*.yaml"))
MONITOR_ON = {"enable_perf_monitor": True}
ACCEPTED_AND_IGNORED = (
    "tensorboard"  # a word of the documented command line that FlagScale itself does not know
)


def system_of(*overrides: str) -> dict[str, object]:
    with initialize_config_dir(str(REPO / "conf"), version_base=None):
        config = OmegaConf.to_container(compose("train", list(overrides)), resolve=False)
    return config["train"]["system"]


@pytest.mark.parametrize("task", TASKS)
def test_every_option_has_its_key_in_every_task(task) -> None:
    system = system_of(f"train={task}")
    given = {name: value for name, value in system.items() if name in OPTIONS}
    assert set(given) == set(OPTIONS)
    assert (
        PerfConfig.from_args(given, {}).as_dict() == given
    )  # every value is one that the command line would take


@pytest.mark.parametrize("task", TASKS)
def test_no_key_looks_like_an_option_and_is_none(task) -> None:
    assert [name for name in system_of(f"train={task}") if "perf" in name and name not in OPTIONS] == []


def test_the_plain_task_has_the_defaults_and_the_other_one_the_monitor_on() -> None:
    plain = {name: value for name, value in system_of("train=7b").items() if name in OPTIONS}
    monitored = {
        name: value for name, value in system_of("train=7b_with_perf_monitor").items() if name in OPTIONS
    }
    assert plain == OPTIONS
    assert monitored == OPTIONS | MONITOR_ON


def test_the_keys_of_the_requirement_can_be_set_without_a_plus() -> None:
    system = system_of(
        "train=7b",
        "train.system.enable_perf_monitor=true",
        "train.system.perf_log_interval=3",
        "train.system.perf_log_dir=./outputs/logs/perf_monitor",
    )
    assert (system["enable_perf_monitor"], system["perf_log_interval"], system["perf_log_dir"]) == (
        True,
        3,
        "./outputs/logs/perf_monitor",
    )


def test_every_field_is_a_flag_and_every_flag_a_field() -> None:
    parser = add_perf_arguments(argparse.ArgumentParser(add_help=False))
    assert {action.dest for action in parser._actions} == {*OPTIONS, ACCEPTED_AND_IGNORED}
    named = {
        flag for action in parser._actions for flag in action.option_strings if not flag.startswith("--no-")
    }
    assert named == {"--" + name.replace("_", "-") for name in (*OPTIONS, ACCEPTED_AND_IGNORED)}
