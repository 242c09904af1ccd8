"""What gets into a training process before its loop: flags, refusals, the rehearsal's changes."""

import argparse
import sys
from types import ModuleType

import pytest

from flagscale_perf.hosts.install import Installation


@pytest.fixture
def arguments_module():
    """Named and shaped like `megatron.training.arguments`."""
    module = ModuleType("megatron.training.arguments")

    def add_megatron_arguments(parser):
        parser.add_argument("--distributed-backend", default="nccl")
        return parser

    def parse_args(words):
        parser = module.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
        if "--host-monitor" in words:
            words = [word for word in words if word != "--host-monitor"]
            parser.add_argument_group("host").add_argument("--perf-log-dir", default="the host's")
        return parser.parse_args(words)

    module.add_megatron_arguments, module.parse_args = add_megatron_arguments, parse_args
    return module


@pytest.fixture
def installed(arguments_module, monkeypatch):
    monkeypatch.setitem(sys.modules, arguments_module.__name__, arguments_module)
    installation = Installation([], {}).install()
    yield installation
    installation.undo()


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
def test_a_variable_that_no_option_has_is_said_once_and_the_run_goes_on(rank, lines, capsys):
    environ = {"FLAGSCALE_PERF_LOG_INTERVALL": "5", "FLAGSCALE_PERF_LOG_DIR": "x", "RANK": rank}
    Installation([], environ).install().undo()
    assert capsys.readouterr().err.splitlines() == lines * [
        "flagscale_perf: FLAGSCALE_PERF_LOG_INTERVALL changes nothing: no option of the monitor has this"
        " variable; did you mean FLAGSCALE_PERF_LOG_INTERVAL?"
    ]


def test_flags_get_into_the_hosts_parser(installed, arguments_module):
    parsed = arguments_module.parse_args(["--enable-perf-monitor", "--perf-log-interval", "3"])
    assert (parsed.enable_perf_monitor, parsed.perf_log_interval, parsed.distributed_backend) == (
        True,
        3,
        "nccl",
    )


def test_a_host_that_adds_the_same_flag_later_keeps_its_own(installed, arguments_module):
    assert arguments_module.parse_args(["--host-monitor"]).perf_log_dir == "the host's"


def test_a_parser_that_returns_something_else_is_told_and_ends_nothing(installed, arguments_module, capsys):
    installed.undo()
    arguments_module.parse_args = lambda: (1, 2)
    installed.install()
    installed._patch_arguments(arguments_module)
    assert arguments_module.parse_args() == (1, 2)
    assert "flagscale_perf: monitor switched off at attach: TypeError: " in capsys.readouterr().err


def test_a_wrong_environment_value_ends_before_training(installed, arguments_module, monkeypatch, capsys):
    monkeypatch.setenv("FLAGSCALE_PERF_LOG_INTERVAL", "never")
    with pytest.raises(SystemExit) as refused:
        arguments_module.parse_args([])
    assert refused.value.code == 2
    assert "FLAGSCALE_PERF_LOG_INTERVAL: 'never'" in capsys.readouterr().err


def test_a_rehearsal_changes_what_only_a_gpu_could_serve_and_says_so_once(
    installed, arguments_module, capsys
):
    installed.rehearsing = True
    assert arguments_module.parse_args([]).distributed_backend == "gloo"
    assert arguments_module.parse_args([]).distributed_backend == "gloo"
    assert capsys.readouterr().out == "flagscale_perf: rehearsal changes distributed_backend: nccl -> gloo\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--perf-profile-steps", "3"], "nothing is profiled without the monitor"),
        (
            ["--enable-perf-monitor", "--perf-profile-steps", "3-5/6", "--perf-profile-clean", "1"],
            "a window is 7 steps long",
        ),
    ],
)
def test_profiling_that_cannot_be_meant_ends_the_process_before_the_training(
    installed, arguments_module, capsys, words, message
):
    with pytest.raises(SystemExit) as refused:
        arguments_module.parse_args(words)
    assert refused.value.code == 2
    assert message in capsys.readouterr().err
