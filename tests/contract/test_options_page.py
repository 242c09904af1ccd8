"""docs/options.md lists every option as the code has it, and the example's configuration is the shipped
one.
"""

import argparse
import json
from dataclasses import fields
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from flagscale_perf.arguments import PerfConfig, add_perf_arguments, env_of, flag_of

REPO = Path(__file__).parents[2]


SPECIAL = {
    "perf_host_monitor": ("keep", "keep"),
    "perf_columns": ("MFU, hfu", "mfu,hfu"),
    "perf_profile_steps": ("20-22/100", "20-22/100"),
    "perf_profile_ranks": ("0,2-3", "0,2-3"),
    "perf_profile_causal": ("1:a.b,ms=5/10", "1:a.b,ms=5/10,rounds=10"),
    "perf_prometheus_port": ("9400", "9400"),
    "perf_prometheus_textfile": ("/x/y.prom", "/x/y.prom"),
}


def row_of(option) -> str:
    metavar = option.metadata["metavar"]
    flag = f"{flag_of(option.name)} {metavar}".strip()
    return (
        f"| `{option.name}` | `{flag}` | `{env_of(option.name)}` | `{json.dumps(option.default)}` | "
        f"{option.metadata['help']} |"
    ).replace('"', "")


def test_the_table_is_the_code() -> None:
    page = (REPO / "docs/options.md").read_text()
    table = page[page.index("| yaml key") : page.index("A flag that is true or false")]
    assert table.splitlines()[2:-1] == [row_of(option) for option in fields(PerfConfig)]


@pytest.mark.parametrize("option", fields(PerfConfig), ids=lambda option: option.name)
def test_flag_and_variable_reach_the_field(option) -> None:
    text, value = (
        SPECIAL.get(option.name)
        or {
            "bool": ("false", False),
            "int": ("3", 3),
            "int | None": ("3", 3),
            "str": ("never", "never"),
            "float": ("2.5", 2.5),
            "str | None": ("2.5", "2.5"),
        }[option.type]
    )
    parser = add_perf_arguments(argparse.ArgumentParser())
    assert (
        getattr(PerfConfig.from_args(parser.parse_args([flag_of(option.name), text]), {}), option.name)
        == value
    )
    assert getattr(PerfConfig.from_args({}, {env_of(option.name): text}), option.name) == value


def train_of(directory: str, *overrides: str):
    with initialize_config_dir(str(REPO / directory), version_base=None):
        return compose("train", list(overrides)).train


@pytest.mark.parametrize("task", ["7b", "7b_with_perf_monitor"])
def test_the_example_of_the_requirement_trains_what_conf_describes(task) -> None:
    assert train_of("examples/aquila/conf", f"train={task}") == train_of("conf", f"train={task}")


def test_the_example_of_the_requirement_trains_the_7b_model_by_default() -> None:
    assert train_of("examples/aquila/conf") == train_of("conf", "train=7b")
