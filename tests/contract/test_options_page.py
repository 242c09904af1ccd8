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
from flagscale_perf.options.table import rows_of
from flagscale_perf.trace.options import TraceOptions

REPO = Path(__file__).parents[2]


SPECIAL = {
    "perf_host_monitor": ("keep", "keep"),
    "perf_log_format": ("json", "json"),
    "perf_columns": ("MFU, hfu", "mfu,hfu"),
    "perf_profile_steps": ("20-22/100", "20-22/100"),
    "perf_profile_ranks": ("0,2-3", "0,2-3"),
    "perf_prometheus_port": ("9400", "9400"),
    "perf_otlp": ("http://collector:4318", "http://collector:4318/v1/metrics"),
    "perf_prometheus_textfile": ("/x/y.prom", "/x/y.prom"),
}


def row_of(row) -> str:
    flag = f"{row.flag} {row.metavar}".strip()
    return (
        f"| `{row.name}` | `{flag}` | `{row.variable}` | `{json.dumps(row.default)}` | {row.help} |"
    ).replace('"', "")


def test_the_table_is_the_code() -> None:
    page = (REPO / "docs/options.md").read_text()
    table = page[page.index("| yaml key") : page.index("A flag that is true or false")]
    assert table.splitlines()[2:-1] == [row_of(row) for row in rows_of(PerfConfig).values()]


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
            "float | None": ("2.5", 2.5),
            "str | None": ("2.5", "2.5"),
        }[option.type]
    )
    # what is profiled is of a monitor that is on, and of steps that are named
    needed = {"enable_perf_monitor": True, "perf_profile_steps": "20-22/100"}
    is_of_profiles = option.name.startswith("perf_profile")
    environment = {env_of(name): str(each) for name, each in needed.items() if is_of_profiles}
    parser = add_perf_arguments(argparse.ArgumentParser())
    typed = parser.parse_args([flag_of(option.name), text])
    assert getattr(PerfConfig.from_args(typed, environment), option.name) == value
    assert getattr(PerfConfig.from_args({}, environment | {env_of(option.name): text}), option.name) == value


def train_of(directory: str, *overrides: str):
    with initialize_config_dir(str(REPO / directory), version_base=None):
        return compose("train", list(overrides)).train


@pytest.mark.parametrize("task", ["7b", "7b_with_perf_monitor"])
def test_the_example_of_the_requirement_trains_what_conf_describes(task) -> None:
    assert train_of("examples/aquila/conf", f"train={task}") == train_of("conf", f"train={task}")


def test_the_example_of_the_requirement_trains_the_7b_model_by_default() -> None:
    assert train_of("examples/aquila/conf") == train_of("conf", "train=7b")


def test_the_table_of_traces_is_the_code() -> None:
    page = (REPO / "docs/trace.md").read_text()
    rows = [
        f"| `{row.variable}={'1' if row.is_switch else row.metavar}` | {row.help} |"
        for row in rows_of(TraceOptions).values()
    ]
    assert "\n".join(["| variable | |", "| --- | --- |", *rows, ""]) in page
