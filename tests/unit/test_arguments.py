"""Options: flags, environment, yaml values, refusals."""

import argparse
import io
import json

import pytest

from flagscale_perf.arguments import (
    PerfConfig,
    add_perf_arguments,
    env_of,
    flag_of,
    unknown_variables,
)
from flagscale_perf.launcher.entrypoint import SCRIPT_VARIABLE
from flagscale_perf.spine import stop_note
from flagscale_perf.spine.errors import PerfError


def parse(*words, parser=None):
    parser = add_perf_arguments(parser or argparse.ArgumentParser(allow_abbrev=False))
    return PerfConfig.from_args(parser.parse_args(words), environ={})


def test_defaults_are_those_the_users_were_promised():
    assert parse() == PerfConfig(
        enable_perf_monitor=False,
        perf_log_interval=10,
        perf_log_first=False,
        perf_log_dir="logs/perf_monitor",
        perf_console_output=False,
        perf_memory_tracking=True,
        perf_breakdown=False,
        perf_columns=None,
        perf_capture_steps=None,
        perf_profile_steps=None,
        perf_profile_ranks=None,
        perf_profile_clean=1,
        perf_profile_shapes=True,
        perf_profile_memory=True,
        perf_max_log_files=10,
        perf_peak_tflops=None,
        perf_max_overhead=0.1,
        perf_prometheus_port=None,
        perf_prometheus_textfile=None,
        perf_csv=False,
        perf_wandb=False,
        perf_host_monitor="replace",
        rehearse_on_cpu="auto",
        perf_debug=False,
        perf_log_format="both",
        perf_straggler_threshold=None,
    )


def test_every_flag_reaches_its_field():
    config = parse(
        *(
            "--enable-perf-monitor",
            "--perf-log-interval",
            "7",
            "--perf-log-first",
            "--perf-log-dir",
            "d",
            "--perf-console-output",
        ),
        *("--perf-memory-tracking", "false", "--perf-breakdown", "--perf-max-log-files", "3"),
        *("--perf-capture-steps", "20", "--perf-profile-steps", "20-22/100", "--perf-profile-ranks", "0,2-3"),
        *("--perf-profile-clean", "0", "--perf-profile-shapes", "false", "--no-perf-profile-memory"),
        *("--perf-peak-tflops", "989.4", "--perf-max-overhead", "0.5", "--perf-host-monitor", "keep"),
        *("--rehearse-on-cpu", "never"),
        *(
            "--perf-prometheus-port",
            "9400",
            "--perf-prometheus-textfile",
            "/x/y.prom",
            "--perf-csv",
            "--perf-wandb",
        ),
    )
    assert config == PerfConfig(
        True,
        7,
        "d",
        True,
        True,
        False,
        True,
        None,
        20,
        "20-22/100",
        "0,2-3",
        0,
        False,
        False,
        3,
        "989.4",
        0.5,
        "9400",
        "/x/y.prom",
        True,
        True,
        "keep",
        "never",
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--perf-memory-tracking", "false"],
        ["--no-perf-memory-tracking"],
        ["--perf-memory-tracking=0"],
        ["--perf-memory-tracking", "No"],
    ],
)
def test_a_true_default_can_be_switched_off(words):
    assert parse(*words).perf_memory_tracking is False


def test_what_yaml_null_becomes_on_the_command_line_means_the_default():
    assert (
        parse("--perf-log-interval", "None", "--perf-log-dir", "null", "--perf-memory-tracking", "None")
        == PerfConfig()
    )


def test_a_peak_is_one_figure_or_one_for_each_type_of_device():
    assert parse("--perf-peak-tflops", "A800=312,BI-V150=192").perf_peak_tflops == "A800=312,BI-V150=192"
    assert (
        PerfConfig.from_args({"perf_peak_tflops": 312}, {}).perf_peak_tflops == "312"
    )  # what yaml makes of a figure
    assert PerfConfig.from_args({}, {"FLAGSCALE_PERF_PEAK_TFLOPS": "A800=312"}).perf_peak_tflops == "A800=312"


def test_the_last_of_two_contradicting_flags_wins():
    assert parse("--no-perf-breakdown", "--perf-breakdown").perf_breakdown is True
    assert parse("--perf-breakdown", "--no-perf-breakdown").perf_breakdown is False


@pytest.mark.parametrize(
    ("flag", "value", "cure"),
    [
        ("--perf-log-interval", "0", "write for example 10"),
        ("--perf-log-interval", "ten", "write for example 10"),
        ("--perf-log-interval", "1000000001", "write for example 10"),
        ("--perf-max-log-files", "-1", "write for example 10"),
        ("--perf-capture-steps", "-1", "write for example 20"),
        ("--perf-capture-steps", "1001", "write for example 20"),
        ("--perf-log-dir", "", "write for example logs/perf_monitor"),
        ("--perf-log-dir", "a\nb", "write for example logs/perf_monitor"),
        ("--perf-log-dir", "a\x7fb", "write for example logs/perf_monitor"),
        ("--perf-memory-tracking", "maybe", "write true or false"),
        ("--perf-peak-tflops", "nan", "write for example 989.4"),
        ("--perf-peak-tflops", "-3", "write for example 989.4"),
        ("--perf-peak-tflops", "A800=312,A100", "write for example 989.4, or A800=312,BI-V150=192"),
        ("--perf-peak-tflops", "A800=312,A800-SXM=300", "write names of which none is a part of another"),
        ("--perf-max-overhead", "0", "write for example 0.1"),
        ("--perf-max-overhead", "100.5", "write for example 0.1"),
        ("--perf-max-overhead", "nan", "write for example 0.1"),
        ("--perf-max-overhead", "little", "write for example 0.1"),
        ("--perf-prometheus-port", "0", "write for example 9400"),
        ("--perf-prometheus-port", "65536", "write for example 9400"),
        ("--perf-prometheus-port", ":9400", "write for example 9400"),
        ("--perf-prometheus-port", "::1:9400", "write for example 9400"),
        (
            "--perf-prometheus-textfile",
            "perf.prom",
            "write for example /var/lib/node_exporter/flagscale_perf.prom",
        ),
        (
            "--perf-prometheus-textfile",
            "/x/perf.txt",
            "write for example /var/lib/node_exporter/flagscale_perf.prom",
        ),
        ("--rehearse-on-cpu", "yes", "write for example auto"),
    ],
)
def test_a_wrong_value_is_refused_with_option_value_and_cure(flag, value, cure, capsys):
    with pytest.raises(SystemExit) as refused:
        parse(f"{flag}={value}")
    message = capsys.readouterr().err
    assert refused.value.code == 2
    assert flag in message
    assert repr(value) in message
    assert cure in message


def test_environment_stands_in_for_flags_that_are_not_given():
    parser = add_perf_arguments(argparse.ArgumentParser())
    environ = {
        "FLAGSCALE_PERF_ENABLE_MONITOR": "1",
        "FLAGSCALE_PERF_LOG_INTERVAL": "5",
        "FLAGSCALE_PERF_LOG_DIR": "e",
    }
    args = parser.parse_args(["--perf-log-dir", "flag"])
    assert PerfConfig.from_args(args, environ) == PerfConfig(
        enable_perf_monitor=True, perf_log_interval=5, perf_log_dir="flag"
    )


def test_a_wrong_environment_value_is_refused_by_its_name():
    with pytest.raises(PerfError, match="FLAGSCALE_PERF_LOG_INTERVAL: 'x' is not a whole number"):
        PerfConfig.from_args({}, {"FLAGSCALE_PERF_LOG_INTERVAL": "x"})


def test_a_parser_that_already_has_the_flags_is_left_to_the_host():
    host = argparse.ArgumentParser()
    host.add_argument("--enable-perf-monitor", action="store_true")
    host.add_argument("--perf-log-interval", type=int, default=25)
    assert parse("--enable-perf-monitor", parser=host) == PerfConfig(
        enable_perf_monitor=True, perf_log_interval=25
    )


def test_adding_twice_is_adding_once():
    parser = argparse.ArgumentParser()
    add_perf_arguments(add_perf_arguments(parser))
    assert sum(action.dest == "perf_log_dir" for action in parser._actions) == 1


def test_args_are_only_read():
    args = argparse.Namespace(perf_log_interval=3)
    PerfConfig.from_args(args, {})
    assert vars(args) == {"perf_log_interval": 3}


def test_names_follow_from_the_field():
    assert flag_of("perf_log_dir") == "--perf-log-dir"
    assert env_of("perf_log_dir") == "FLAGSCALE_PERF_LOG_DIR"
    assert env_of("enable_perf_monitor") == "FLAGSCALE_PERF_ENABLE_MONITOR"
    assert env_of("rehearse_on_cpu") == "FLAGSCALE_PERF_REHEARSE_ON_CPU"


@pytest.mark.parametrize(
    "name", ["perf_log_interval", "perf_max_overhead", "perf_peak_tflops", "perf_prometheus_port"]
)
def test_true_is_no_number(name):
    with pytest.raises(PerfError, match=f"^{flag_of(name)}: "):
        PerfConfig.from_args({name: True}, {})


@pytest.mark.parametrize("text", ["None", "null", ""])
def test_an_unset_variable_means_the_default(text):
    assert (
        PerfConfig.from_args({}, {"FLAGSCALE_PERF_LOG_DIR": text, "FLAGSCALE_PERF_MEMORY_TRACKING": text})
        == PerfConfig()
    )


def test_a_flag_that_the_host_adds_later_keeps_the_hosts_default():
    parser = add_perf_arguments(argparse.ArgumentParser(conflict_handler="resolve"))
    parser.add_argument("--perf-memory-tracking", type=int, default=0)
    assert PerfConfig.from_args(parser.parse_args([]), {}).perf_memory_tracking is False


def test_options_come_back_from_a_run_file_as_they_were_written():
    config = PerfConfig(
        enable_perf_monitor=True, perf_log_interval=7, perf_memory_tracking=False, perf_peak_tflops="A=1,B=2"
    )
    assert PerfConfig.of(config.as_dict()) == config
    assert PerfConfig.of(json.loads(json.dumps(config.as_dict()))) == config


def test_options_of_another_version_or_type_have_their_defaults():
    assert PerfConfig.of(
        {
            "perf_log_interval": 7,
            "later": 1,
            "perf_csv": "?",
            "perf_max_overhead": None,
            "perf_max_log_files": True,
        }
    ) == PerfConfig(perf_log_interval=7)


def test_a_path_that_stdout_cannot_encode_is_handed_to_the_host_with_escapes(monkeypatch):
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    parser = add_perf_arguments(argparse.ArgumentParser())
    parsed = parser.parse_args(["--perf-log-dir", "/x/日志", "--perf-log-interval", "7"])
    assert (parsed.perf_log_dir, parsed.perf_log_interval) == ("/x/\\u65e5\\u5fd7", 7)
    assert PerfConfig.from_args(parsed, {}).perf_log_dir == "/x/日志"


def test_columns_are_a_list_of_keys_each_once():
    assert parse().columns() == []
    assert parse("--perf-columns", " MFU , tokens_per_s,mfu").columns() == ["mfu", "tokens_per_s"]
    assert PerfConfig.from_args({}, {"FLAGSCALE_PERF_COLUMNS": "mfu"}).columns() == ["mfu"]
    for wrong in ("", "mfu,", "mfu;hfu", "Time(ms)", "[mfu]"):
        with pytest.raises(PerfError, match="is not a list of figures; write for example tokens_per_s,mfu,"):
            PerfConfig.from_args({"perf_columns": wrong}, {})


def test_variables_that_no_option_has_are_named_with_the_nearest() -> None:
    environ = {
        "FLAGSCALE_PERF_LOG_INTERVALL": "5",
        "FLAGSCALE_PERF_LOG_DIR": "x",
        "FLAGSCALE_PERF_QUUX_FLURB": "",
        SCRIPT_VARIABLE: "train.py",
        stop_note.VARIABLE: "note",
        "FLAGSCALE_HOME": "y",
    }
    assert unknown_variables(environ) == {
        "FLAGSCALE_PERF_LOG_INTERVALL": (
            "no option of the monitor has this variable; did you mean FLAGSCALE_PERF_LOG_INTERVAL?"
        ),
        "FLAGSCALE_PERF_QUUX_FLURB": "no option of the monitor has this variable",
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"perf_profile_steps": "20-22"},
            "--perf-profile-steps 20-22: nothing is profiled without the monitor; add --enable-perf-monitor",
        ),
        (
            {"enable_perf_monitor": True, "perf_profile_ranks": "0"},
            "--perf-profile-ranks 0: of no steps; add for example --perf-profile-steps 20-31",
        ),
        (
            {"enable_perf_monitor": True, "perf_profile_steps": "20-22", "profile": True},
            "--perf-profile-steps 20-22 and the host's own --profile: two profilers take each other's events;"
            " leave one of them out",
        ),
    ],
)
def test_profiling_that_cannot_be_meant_is_refused(given, message):
    with pytest.raises(PerfError) as refusal:
        PerfConfig.from_args(given, {})
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    "given",
    [
        {"profile": True, "enable_perf_monitor": True},
        {"enable_perf_monitor": True, "perf_profile_steps": "3", "perf_profile_ranks": "0"},
        {"perf_profile_steps": "null", "perf_profile_ranks": None, "perf_profile_clean": 1},
    ],
)
def test_profiling_that_can_be_meant_is_not_refused(given):
    PerfConfig.from_args(given, {})


ON = {"enable_perf_monitor": True}
SAMPLES = {"train_samples": 64, "global_batch_size": 8}


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        (
            {"perf_profile_steps": "20-22", "train_iters": 6},
            "--perf-profile-steps 20-22: the training ends at iteration 6 (--train-iters 6); write steps from"
            " 1 to 6",
        ),
        (
            {"perf_profile_steps": "9/100", **SAMPLES},
            "--perf-profile-steps 9-9/100: the training ends at iteration 8 (--train-samples 64, 8 each);"
            " write steps from 1 to 8",
        ),
        (
            {"perf_profile_steps": "20", "train_iters": 60, "exit_interval": 10},
            "--perf-profile-steps 20-20: the training ends at iteration 10 (--exit-interval 10); write steps"
            " from 1 to 10",
        ),
        (
            {"perf_profile_steps": "2", "perf_profile_ranks": "0,4-5", "world_size": 4},
            "--perf-profile-ranks 0,4-5: there is no rank 4; write ranks from 0 to 3",
        ),
    ],
)
def test_what_a_training_can_never_reach_is_refused_before_it_starts(given, refusal):
    with pytest.raises(PerfError) as refused:
        PerfConfig.from_args(ON | given, {})
    assert str(refused.value) == refusal


@pytest.mark.parametrize(
    "given",
    [
        {"perf_profile_steps": "6", "train_iters": 6},
        {"perf_profile_steps": "20", "train_iters": 60, "exit_interval": 10, "load": "checkpoints"},
        {"perf_profile_steps": "9", **SAMPLES, "rampup_batch_size": ["2", "2", "32"]},
        {"perf_profile_steps": "20"},
        {"perf_capture_steps": 1000, "train_iters": 10},  # as many as there are
        {"perf_profile_steps": "2", "perf_profile_ranks": "0,4"},  # how many there are is not known
    ],
)
def test_what_may_be_reached_is_not_refused(given):
    assert PerfConfig.from_args(ON | given, {}).enable_perf_monitor
