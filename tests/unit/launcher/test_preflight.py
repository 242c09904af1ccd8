"""What is looked at before a job is started: its data, the directories it writes to."""

import os

import pytest

from flagscale_perf.launcher.config import read_job
from flagscale_perf.launcher.plan import make_plan
from flagscale_perf.launcher.preflight import check
from flagscale_perf.spine.errors import PerfError

NOT_ESTIMATED = "memory: not estimated: model: hidden_size is missing; add it to the arguments"


@pytest.fixture
def plan_of(config, tmp_path):
    """The plan of a job with these data and options of the system."""

    def make(data=None, **system):
        config["train"]["data"] = data or {}
        config["train"]["system"] |= system
        return make_plan(read_job(config, str(tmp_path)), {})

    return make


def data_set(tmp_path, *names):
    for name in names:
        (tmp_path / f"{name}.bin").write_text("")
        (tmp_path / f"{name}.idx").write_text("")


@pytest.mark.parametrize(
    "data_path",
    ["a", ["a"], ["a", "b", "c"], [0.3, "a", 0.7, "b"], ["0.3", "a", "0.7", "b"], "s3://x/y", None],
)
def test_data_that_are_there(plan_of, tmp_path, data_path) -> None:
    data_set(tmp_path, "a", "b", "c")
    assert check(plan_of({"data_path": data_path})) == [NOT_ESTIMATED]


def test_data_of_another_kind_are_left_to_their_training_script(plan_of, tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    (tmp_path / "shards").mkdir()
    assert check(plan_of({"data_path": ["a.jsonl", "shards", "a.jsonl"]})) == [NOT_ESTIMATED]


def test_mock_data_are_said(plan_of) -> None:
    made_up = "data: made up by Megatron (mock_data is true); the loss means nothing"
    assert check(plan_of({"mock_data": True, "data_path": "gone"})) == [made_up, NOT_ESTIMATED]


@pytest.mark.parametrize(
    ("data_path", "absent"),
    [
        ("gone", "gone.bin and gone.idx are not there"),
        ("half", "half.idx is not there"),
        ([0.5, "a", 0.5, "gone"], "gone.bin and gone.idx are not there"),
        ("a b", "a b.bin and a b.idx are not there"),
    ],
)
def test_data_that_are_not_there_are_refused(plan_of, tmp_path, data_path, absent) -> None:
    data_set(tmp_path, "a", "b")
    (tmp_path / "half.bin").write_text("")
    with pytest.raises(PerfError) as refusal:
        check(plan_of({"data_path": data_path}))
    assert str(refusal.value) == (
        f"train.data.data_path: {absent}, seen from {tmp_path}; give the path of both files without .bin and"
        " .idx (Megatron's tools/preprocess_data.py makes them), or train on made-up data:"
        " train.data.data_path=null ++train.data.mock_data=true"
    )


def test_one_file_of_a_data_set_is_refused(plan_of, tmp_path) -> None:
    data_set(tmp_path, "a")
    with pytest.raises(
        PerfError, match=r"^train.data.data_path: 'a.bin' is one file of a data set; write a$"
    ):
        check(plan_of({"data_path": "a.bin"}))


@pytest.mark.parametrize("directory", ["/proc/nope", "/proc/nope/deeper", "/dev/null", "/dev/null/below"])
def test_a_monitors_directory_that_cannot_be_written_is_refused(plan_of, directory) -> None:
    with pytest.raises(PerfError) as refusal:
        check(plan_of(perf_log_dir=directory))
    why = "/dev/null is a file" if "null" in directory else "/proc: No such file or directory"
    assert str(refusal.value) == (
        f"train.system.perf_log_dir: {directory!r} cannot be written: {why}; give a place that can, for"
        " example train.system.perf_log_dir=./outputs/logs/perf_monitor"
    )
    assert check(plan_of(perf_log_dir=directory, enable_perf_monitor=False)) == [NOT_ESTIMATED]


def test_the_experiments_own_directory_goes_first(plan_of, tmp_path) -> None:
    plan = plan_of()
    os.makedirs(plan.job.paths.exp_dir)
    (tmp_path / "exp/logs").write_text("")
    with pytest.raises(PerfError) as refusal:
        check(plan)
    assert str(refusal.value) == (
        f"experiment.exp_dir: '{tmp_path}/exp/logs' cannot be written: {tmp_path}/exp/logs is a file; give a"
        " place that can, for example experiment.exp_dir=./outputs"
    )


def test_a_textfile_for_prometheus_that_cannot_be_written_is_refused(plan_of) -> None:
    with pytest.raises(PerfError) as refusal:
        check(plan_of(perf_prometheus_textfile="/proc/nope/x.prom"))
    assert str(refusal.value) == (
        "train.system.perf_prometheus_textfile: '/proc/nope/x.prom' cannot be written: /proc: No such file or"
        " directory; give a place that can, for example"
        " train.system.perf_prometheus_textfile=/var/lib/node_exporter/flagscale_perf.prom"
    )
