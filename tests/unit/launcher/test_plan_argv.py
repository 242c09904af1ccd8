"""Sections of a configuration become the host's options."""

import pytest

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.launcher.config import as_text, read_job
from flagscale_perf.launcher.plan import option, to_argv
from flagscale_perf.spine.errors import PerfError


def argv_of(perf=None, **train) -> list[str]:
    return to_argv(
        read_job({"experiment": {"exp_dir": "e"}, "train": train}, "/").settings, perf or PerfConfig()
    )


def test_sections_follow_each_other_and_outer_keys_are_dropped() -> None:
    assert argv_of(
        data={"vocab_size": 8000, "tokenizer": {"tokenizer_type": "NullTokenizer"}},
        model={"num_layers": 2, "optimizer": {"lr_scheduler": {"lr": 2.0e-5}}},
        system={"checkpoint": {"save_interval": 20}, "fp16": True},
    ) == [
        *("--save-interval", "20", "--fp16", "--num-layers", "2", "--lr", "2e-05"),
        *("--vocab-size", "8000", "--tokenizer-type", "NullTokenizer"),
    ]


def test_false_and_null_leave_an_option_of_the_host_out() -> None:
    assert argv_of(system={"fp16": False, "save": None, "swiglu": True}) == ["--swiglu"]


def test_options_of_the_monitor_come_from_the_checked_values() -> None:
    perf = PerfConfig(enable_perf_monitor=True, perf_memory_tracking=False, perf_log_interval=7)
    system = {
        "enable_perf_monitor": "yes",
        "perf_memory_tracking": False,
        "perf_log_interval": "7",
        "perf_peak_tflops": None,
    }
    assert argv_of(perf, system=system) == [
        "--enable-perf-monitor",
        "--no-perf-memory-tracking",
        "--perf-log-interval",
        "7",
    ]


def test_list_is_several_values() -> None:
    assert argv_of(data={"data_path": [0.3, "a b", 0.7, "-1"]}) == ["--data-path", "0.3", "a b", "0.7", "-1"]


def test_keys_of_the_launcher_are_no_options() -> None:
    assert (
        argv_of(system={"logging": {"log_dir": "x", "scripts_dir": "x", "pids_dir": "x", "details_dir": "x"}})
        == []
    )


def test_two_keys_of_one_option_may_agree() -> None:
    assert argv_of(model={"weight_decay": 0.1, "optimizer": {"weight_decay": 0.1}}) == [
        "--weight-decay",
        "0.1",
    ]


def test_null_does_not_undo_a_value() -> None:
    assert argv_of(system={"seed": 1}, model={"seed": None}) == ["--seed", "1"]
    assert argv_of(system={"seed": None}, model={"seed": 1}) == ["--seed", "1"]


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (
            {"system": {"perf": {"log_interval": 7}, "logging": {"log_interval": 1}}},
            (
                "train.system.perf.log_interval=7 and train.system.logging.log_interval=1 both mean "
                "--log-interval; remove one of them"
            ),
        ),
        (
            {"system": {"seed": 1}, "model": {"seed": 2}},
            "train.system.seed=1 and train.model.seed=2 both mean --seed; remove one of them",
        ),
        (
            {"system": {"x": True}, "model": {"x": 1}},
            "train.system.x=True and train.model.x=1 both mean --x; remove one of them",
        ),
        (
            {"optimizer": {}},
            ("train.optimizer: not one of the sections system, model, data; move its keys into one of them"),
        ),
        ({"system": [1]}, "train.system: [1] is not a section of keys; write train.system.KEY=VALUE"),
        (
            {"system": {"a b": 1}},
            ("'train.system.a b': 'a b' cannot be an option's name; use letters, digits and _"),
        ),
        (
            {"system": {"-x": 1}},
            ("'train.system.-x': '-x' cannot be an option's name; use letters, digits and _"),
        ),
        ({"system": {3: 1}}, "'train.system.3': 3 cannot be an option's name; use letters, digits and _"),
        (
            {"data": {"data_path": "???"}},
            "train.data.data_path: has no value yet; add train.data.data_path=VALUE to the command",
        ),
        (
            {"data": {"data_path": []}},
            (
                "train.data.data_path: an empty list has no meaning on a command line; write null to leave "
                "the option out"
            ),
        ),
        (
            {"data": {"data_path": ["a", "-b"]}},
            (
                "train.data.data_path[1]: '-b' in a list would be taken for an option; begin it with "
                "another character, for example ./"
            ),
        ),
        (
            {"data": {"data_path": [["a"]]}},
            "train.data.data_path[0]: ['a'] is not a single value; write a number, a text, true or false",
        ),
        (
            {"model": {"x": "a\0b"}},
            "train.model.x: 'a\\x00b' contains a NUL character, which no program can be given; remove it",
        ),
        (
            {"model": {"x": "\ud800"}},
            (
                "train.model.x: '\\ud800' contains half a character (a lone "
                "surrogate); write the whole character"
            ),
        ),
        (
            {"model": {"x": "é" * 65536}},
            "train.model.x: 131072 bytes are too long for one argument (at most 131071); put it in a file",
        ),
    ],
)
def test_what_cannot_be_passed_is_refused_by_name(train, message) -> None:
    with pytest.raises(PerfError) as refusal:
        argv_of(**train)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", ["--k", "a"]),
        ("", ["--k", ""]),
        ("-1.5", ["--k", "-1.5"]),
        ("-x", ["--k=-x"]),
        ("--k", ["--k=--k"]),
        ("-1.", ["--k=-1."]),
        ("-.", ["--k=-."]),
        ("-1e5", ["--k=-1e5"]),
    ],
)
def test_value_that_looks_like_an_option_is_tied_to_its_flag(text, expected) -> None:
    assert option("--k", text) == expected


@pytest.mark.parametrize("value", [None, [1], {"a": 1}])
def test_only_scalars_are_texts(value) -> None:
    with pytest.raises(
        PerfError, match=r"^k: .* is not a single value; write a number, a text, true or false$"
    ):
        as_text(value, "k")
