"""What follows from a row of a table of options."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import pytest

from flagscale_perf.options.table import (
    add_arguments,
    from_arguments,
    from_environment,
    option,
    rows_of,
    to_environment,
)
from flagscale_perf.options.values import above_zero, one_of, parse_bool, path, whole
from flagscale_perf.spine.errors import PerfError


@dataclass(frozen=True)
class Toy:
    """An instrument's options."""

    perf_toys: int = option(3, whole(1, 9, 2), "how many", metavar="N")
    perf_loud: bool = option(True, parse_bool, "with sound")
    where: str | None = option(None, path("here"), "the shelf", "TOY_SHELF")


def test_flag_and_variable_follow_from_the_name_unless_it_has_a_variable_of_its_own() -> None:
    rows = rows_of(Toy).values()
    assert [(row.flag, row.variable, row.default, row.is_switch) for row in rows] == [
        ("--perf-toys", "FLAGSCALE_PERF_TOYS", 3, False),
        ("--perf-loud", "FLAGSCALE_PERF_LOUD", True, True),
        ("--where", "TOY_SHELF", None, False),
    ]


def test_another_process_has_the_same_options_by_its_environment() -> None:
    options = Toy(5, False)
    assert to_environment(options) == {
        "FLAGSCALE_PERF_TOYS": "5",
        "FLAGSCALE_PERF_LOUD": "0",
        "TOY_SHELF": "",
    }
    assert Toy(**from_environment(Toy, to_environment(options))) == options
    with pytest.raises(
        PerfError, match="^FLAGSCALE_PERF_TOYS: '10' is not a whole number from 1 to 9; write"
    ):
        from_environment(Toy, {"FLAGSCALE_PERF_TOYS": "10"})


def test_arguments_and_yaml_are_named_by_whoever_reads_them() -> None:
    assert from_arguments(Toy, {"perf_toys": "4", "perf_loud": "none", "other": 1}) == {"perf_toys": 4}
    with pytest.raises(PerfError, match="^toys.perf_loud: 3 is neither true nor false; write true or false$"):
        from_arguments(Toy, {"perf_loud": 3}, lambda name: f"toys.{name}")


def test_a_parser_has_each_flag_once_and_a_negation_of_each_switch() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--where", default="host's")
    for _ in range(2):
        add_arguments(parser, Toy, "toys", "")
    given = vars(parser.parse_args(["--perf-toys", "4", "--no-perf-loud"]))
    assert given == {"perf_toys": 4, "perf_loud": False, "where": "host's"}


@pytest.mark.parametrize(
    ("parse", "value", "message"),
    [
        (above_zero(1, "0.1"), "1.5", "'1.5' is not a number above 0 and up to 1; write for example 0.1"),
        (above_zero(1, "0.1"), True, "True is not a number above 0 and up to 1; write for example 0.1"),
        (
            above_zero(100, "5", " of percent"),
            "nan",
            "'nan' is not a number of percent above 0 and up to 100",
        ),
        (one_of("replace", "keep"), "no", "'no' is not one of replace, keep; write for example replace"),
        (path("logs"), "a\nb", r"'a\nb' is not a usable path; write for example logs"),
    ],
)
def test_a_wrong_value_is_refused_with_what_to_write(parse, value, message) -> None:
    with pytest.raises(PerfError) as refused:
        parse(value)
    assert str(refused.value).startswith(message)
