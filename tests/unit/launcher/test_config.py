"""What is read from the configuration: everything once, or the part that an action needs."""

import sys

import pytest

from flagscale_perf.launcher.config import Job, Setting, read_asked, read_job
from flagscale_perf.launcher.paths import ExperimentPaths
from flagscale_perf.spine.errors import PerfError


def test_the_whole_configuration() -> None:
    runner = {"nnodes": 1, "max_restarts": None, "no_python": True, "x": False, "ssh_port": 22}
    config = {
        "action": "test",
        "experiment": {
            "exp_dir": "./outputs",
            "task": {"flagscale_root": "/fs", "entrypoint": "my.py", "python": None},
            "runner": runner | {"background": True},
            "envs": {"A": 3, "B": True, "C": None},
            "cmds": {"before_start": "source env"},
        },
        "train": {
            "system": {"logging": {"log_dir": "my_logs"}, "fp16": False},
            "model": None,
            "data": {"n": [1]},
        },
    }
    assert read_job(config, "/") == Job(
        action="test",
        hostfile=None,
        paths=ExperimentPaths("/outputs", "/outputs/my_logs", "/"),
        name=None,
        flagscale_root="/fs",
        entrypoint="my.py",
        python=sys.executable,
        background=True,
        check_memory=True,
        torchrun={"nnodes": "1", "no_python": None},
        runner=runner,
        env={"CUDA_DEVICE_MAX_CONNECTIONS": "1", "A": "3", "B": "1", "C": None},
        before_start="source env",
        settings={"fp16": Setting("train.system.fp16", False), "n": Setting("train.data.n", [1])},
    )


def test_what_nobody_wrote_has_no_value() -> None:
    job = read_job({"experiment": {"exp_dir": "e"}, "train": {}}, "/")
    assert (job.action, job.paths, job.flagscale_root) == ("run", ExperimentPaths("/e", "/e/logs", "/"), None)
    assert (job.entrypoint, job.background, job.torchrun, job.before_start, job.settings) == (
        None,
        False,
        {},
        "",
        {},
    )


def test_an_action_that_starts_nothing_needs_the_directories_only() -> None:
    config = {"experiment": {"exp_dir": "e", "task": 3, "envs": {"A": []}}}
    assert read_asked(config, "/").paths == ExperimentPaths("/e", "/e/logs", "/")


def test_a_hostfile_means_several_machines() -> None:
    for hostfile in (None, "hosts"):
        config = {"experiment": {"exp_dir": "e", "runner": {"hostfile": hostfile}}}
        assert read_asked(config, "/").hostfile == hostfile


@pytest.mark.parametrize("exp_dir", [None, "", " ", 3, "a\0b", "a\nb", ["x"]])
def test_unusable_experiment_directory_is_refused(exp_dir) -> None:
    with pytest.raises(
        PerfError,
        match=(
            r"^experiment.exp_dir: .* is not a directory name; write for example "
            r"experiment.exp_dir=./outputs$"
        ),
    ):
        read_asked({"experiment": {"exp_dir": exp_dir}}, "/")


def test_background_is_true_or_false(config) -> None:
    config["experiment"]["runner"]["background"] = 1
    with pytest.raises(
        PerfError, match=r"^experiment.runner.background: 1 is neither true nor false; write true or false$"
    ):
        read_job(config, "/")


def test_a_section_may_be_absent_or_null_and_nothing_else() -> None:
    for logging in ({}, None, {"log_dir": None}):
        config = {"experiment": {"exp_dir": "e"}, "train": {"system": {"logging": logging}}}
        assert read_asked(config, "/").paths.log_dir == "/e/logs"
    with pytest.raises(
        PerfError,
        match=(
            r"^train.system.logging: system is 3 and not a section of keys; see conf/train.yaml for the "
            r"form$"
        ),
    ):
        read_asked({"experiment": {"exp_dir": "e"}, "train": {"system": 3}}, "/")


def test_configuration_without_a_task_is_refused() -> None:
    with pytest.raises(
        PerfError,
        match=(
            r"^train: no such section in the configuration; pick one with train=NAME, for example "
            r"train=demo_llama$"
        ),
    ):
        read_job({"experiment": {"exp_dir": "e"}}, "/")


def test_settings_remember_where_they_are_written() -> None:
    train = {"system": {"checkpoint": {"save-interval": 5}}}
    assert read_job({"experiment": {"exp_dir": "e"}, "train": train}, "/").settings == {
        "save_interval": Setting("train.system.checkpoint.save-interval", 5)
    }


@pytest.mark.parametrize(
    ("where", "key", "value", "message"),
    [
        (
            "runner",
            "nproc_per_node",
            0,
            "0 is not a whole number above 0, auto, gpu or cpu; write for example 8",
        ),
        (
            "runner",
            "nproc_per_node",
            "two",
            "'two' is not a whole number above 0, auto, gpu or cpu; write for example 8",
        ),
        (
            "runner",
            "nproc_per_node",
            True,
            "True is not a whole number above 0, auto, gpu or cpu; write for example 8",
        ),
        (
            "runner",
            "nproc_per_node",
            False,
            "False is not a whole number above 0, auto, gpu or cpu; write for example 8",
        ),
        ("runner", "nnodes", 0, "0 is not a whole number above 0, or MIN:MAX; write for example 2"),
        ("runner", "nnodes", "2-4", "'2-4' is not a whole number above 0, or MIN:MAX; write for example 2"),
        ("runner", "node_rank", -1, "-1 is not a whole number from 0 on; write for example 0"),
        ("runner", "max_restarts", 1.5, "1.5 is not a whole number from 0 on; write for example 0"),
        ("runner", "master_port", 65536, "65536 is not a port from 0 to 65535; write for example 29500"),
        ("runner", "nproc_pernode", 8, "there is no such key; did you mean nproc_per_node?"),
        ("runner", "perf_log_intervall", 5, "there is no such key; did you mean perf_log_interval?"),
        ("runner", "hostfle", "hosts", "there is no such key; did you mean hostfile?"),
        ("runner", "check_memory", "no", "'no' is neither true nor false; write true or false"),
        ("task", "entrypont", "my.py", "there is no such key; did you mean entrypoint?"),
    ],
)
def test_a_wrong_key_or_value_of_the_launcher_is_refused(config, where, key, value, message) -> None:
    config["experiment"][where][key] = value
    with pytest.raises(PerfError) as refusal:
        read_job(config, "/")
    assert str(refusal.value) == f"experiment.{where}.{key}: {message}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nproc_per_node", "auto"),
        ("nproc_per_node", "2"),
        ("nproc_per_node", 16),
        ("nnodes", "1:4"),
        ("node_rank", 0),
        ("max_restarts", 0),
        ("master_port", 65535),
        ("rdzv_timeout", 5),
    ],
)
def test_right_values_and_unknown_options_of_torchrun_are_passed_on(config, key, value) -> None:
    config["experiment"]["runner"][key] = value
    assert read_job(config, "/").torchrun[key] == str(value)


def test_the_monitors_options_may_be_the_runners_as_with_flagscales_own() -> None:
    runner = {
        "enable_perf_monitor": True,
        "perf_log_interval": 5,
        "perf_log_dir": "d",
        "perf_log_format": "json",
    }
    config = {
        "experiment": {
            "exp_dir": "x",
            "runner": runner | {"heartbeat": {"interval": 3}, "enable_gpu_health_check": True, "nnodes": 1},
        },
        "train": {"system": {"perf_log_interval": 7, "perf_log_dir": None}},
    }
    job = read_job(config, "/")
    assert job.settings == {
        "perf_log_interval": Setting("train.system.perf_log_interval", 7),
        "perf_log_dir": Setting("experiment.runner.perf_log_dir", "d"),
        "enable_perf_monitor": Setting("experiment.runner.enable_perf_monitor", True),
        "perf_log_format": Setting("experiment.runner.perf_log_format", "json"),
    }
    assert job.torchrun == {"nnodes": "1"}
    assert job.runner == {"heartbeat": {"interval": 3}, "enable_gpu_health_check": True, "nnodes": 1}
