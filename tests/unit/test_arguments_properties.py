"""Options: every configuration is the same typed, in the environment and in yaml; every wrong value is
refused by its option's name.
"""

from __future__ import annotations

import argparse
import contextlib
import io
from dataclasses import fields, replace
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from flagscale_perf.arguments import (
    HOST_MONITOR_MODES,
    LOG_FORMATS,
    MAX_CAPTURE_STEPS,
    REHEARSAL_MODES,
    PerfConfig,
    add_perf_arguments,
    env_of,
    flag_of,
)
from flagscale_perf.options.values import Steps
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import is_usable_name
from tests.strategies import json_values

OPTIONS = {field.name: field for field in fields(PerfConfig)}
COUNT = st.integers(1, 10**9)
KEY = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True).filter(lambda key: key not in ("none", "null"))
PATH = st.text(min_size=1, max_size=20).filter(
    lambda text: (
        text.strip().lower() not in ("none", "null")
        and is_usable_name(text)
        and not text.startswith("~")
        and ":" not in text
    )
)
TFLOPS = st.floats(0.001, 999_999).map(repr)
NAMED_PEAKS = st.dictionaries(st.sampled_from(["A800", "BI-V150", "H200", "MI300X"]), TFLOPS, min_size=1).map(
    lambda peaks: ",".join(f"{name}={tflops}" for name, tflops in peaks.items())
)
PORT = st.integers(1, 65535).map(str)
ADDRESS = st.builds("{}:{}".format, st.sampled_from(["0.0.0.0", "localhost", "[::1]"]), PORT)


def steps(first: int, more: int, every: int | None) -> str:
    return str(Steps(first, first + more, every))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    name: st.booleans() for name, field in OPTIONS.items() if isinstance(field.default, bool)
} | {
    "perf_log_interval": COUNT,
    "perf_log_dir": PATH,
    "perf_otlp": st.none() | PORT.map("http://collector:{}/v1/metrics".format),
    "perf_run_name": st.none() | KEY,
    "perf_on_finding": st.none() | st.sampled_from(["tell.sh", "sh -c 'cat >> told'", "a\\ b c"]),
    "perf_columns": st.none() | st.lists(KEY, min_size=1, max_size=5, unique=True).map(",".join),
    "perf_capture_steps": st.none() | st.integers(1, MAX_CAPTURE_STEPS),
    "perf_profile_steps": st.none()
    | st.builds(steps, COUNT, st.integers(0, 9), st.none() | st.integers(10, 99)),
    "perf_profile_ranks": st.none() | st.sampled_from(["0", "0,2-3", "7-15"]),
    "perf_profile_clean": st.integers(0, 100),
    "perf_max_log_files": COUNT,
    "perf_ranks_gb": st.none() | st.integers(0, 10**6),
    "perf_peak_tflops": st.none() | TFLOPS | NAMED_PEAKS,
    "perf_log_format": st.sampled_from(LOG_FORMATS),
    "perf_straggler_threshold": st.none() | st.floats(0, 1000, exclude_min=True),
    "perf_max_overhead": st.floats(0, 100, exclude_min=True),
    "perf_prometheus_port": st.none() | PORT | ADDRESS,
    "perf_prometheus_textfile": st.none() | PATH.map("/{}.prom".format),
    "perf_host_monitor": st.sampled_from(HOST_MONITOR_MODES),
    "rehearse_on_cpu": st.sampled_from(REHEARSAL_MODES),
}


def possible(config: PerfConfig) -> PerfConfig:
    """Without ranks of no profiled steps, and without steps to profile where the monitor is off."""
    steps = config.perf_profile_steps if config.enable_perf_monitor else None
    ranks = config.perf_profile_ranks if steps is not None else None
    return replace(config, perf_profile_steps=steps, perf_profile_ranks=ranks)


CONFIGS = st.builds(PerfConfig, **VALUES).map(possible)


def typed(words: list[str]) -> PerfConfig:
    return PerfConfig.from_args(
        add_perf_arguments(argparse.ArgumentParser(allow_abbrev=False)).parse_args(words), environ={}
    )


def test_every_option_has_its_strategy() -> None:
    assert VALUES.keys() == OPTIONS.keys()


@given(CONFIGS)
def test_flags_environment_and_yaml_say_the_same(config: PerfConfig) -> None:
    told = {name: value for name, value in config.as_dict().items() if value is not None}
    assert typed([f"{flag_of(name)}={value}" for name, value in told.items()]) == config
    assert PerfConfig.from_args({}, {env_of(name): str(value) for name, value in told.items()}) == config
    assert PerfConfig.from_args(yaml.safe_load(yaml.safe_dump(config.as_dict())), {}) == config
    assert PerfConfig.from_args(config, {}) == config


@given(CONFIGS, CONFIGS)
def test_a_flag_wins_over_the_environment(flags: PerfConfig, variables: PerfConfig) -> None:
    environ = {env_of(name): str(value) for name, value in variables.as_dict().items() if value is not None}
    mixed = PerfConfig.from_args(flags.as_dict(), environ).as_dict()
    assert mixed == {
        name: variables.as_dict()[name] if value is None else value for name, value in flags.as_dict().items()
    }


@given(
    st.sampled_from(sorted(OPTIONS)),
    st.text(st.characters(exclude_characters="\0"), max_size=30)
    | st.integers().map(str)
    | st.floats().map(str),
)
@example("perf_prometheus_port", "9" * 5000)
@example("perf_log_interval", "9" * 5000)
@example("perf_peak_tflops", "A=" + "9" * 5000)
@example("perf_max_overhead", "1e-999")
def test_any_word_is_a_value_or_refused_by_the_option_s_name_wherever_it_stands(name: str, word: str) -> None:
    try:
        profiled = {"enable_perf_monitor": True, "perf_profile_steps": "1"}
        config = PerfConfig.from_args(profiled | {name: word}, {})
    except PerfError as error:
        assert str(error).startswith(f"{flag_of(name)}: ")
        if word and word.strip().lower() not in ("none", "null"):
            with pytest.raises(PerfError, match=f"^{env_of(name)}: "):
                PerfConfig.from_args({}, {env_of(name): word})
            said = io.StringIO()
            with contextlib.redirect_stderr(said), pytest.raises(SystemExit) as refused:
                typed([f"{flag_of(name)}={word}"])
            assert refused.value.code == 2
            assert flag_of(name) in said.getvalue()
    else:
        assert PerfConfig.from_args(config, {}) == config


@given(st.dictionaries(st.sampled_from(sorted(OPTIONS)), json_values(2)))
def test_any_yaml_is_a_configuration_or_a_mistake_of_the_user(values: dict[str, Any]) -> None:
    try:
        config = PerfConfig.from_args(values, {})
    except PerfError as error:
        assert str(error).split(":")[0].split(" ")[0] in map(flag_of, values)
    else:
        assert PerfConfig.from_args(config, {}) == config
