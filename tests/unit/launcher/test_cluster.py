"""Several machines are FlagScale's to start; what it would harm, execute or misread is refused."""

import subprocess
from dataclasses import replace

import pytest

from flagscale_perf.launcher import cluster, entrypoint
from flagscale_perf.launcher.cluster import dispatch, flagscale_config
from flagscale_perf.launcher.config import read_job
from flagscale_perf.launcher.plan import make_plan
from flagscale_perf.spine.errors import PerfError


class Runner:
    """Stands in for FlagScale's; notes what it is asked to do."""

    def __init__(self, root, job) -> None:
        self.root, self.job, self.calls, self.resources = (
            root,
            job,
            [],
            {"node0": {"slots": 8}, "node1": {"slots": 8}},
        )

    def run(self, **options) -> None:
        self.calls.append(("run", options))

    def stop(self) -> None:
        self.calls.append(("stop", {}))

    def query_once(self):
        return type("JobStatus", (), {"name": "RUNNING"})


@pytest.fixture
def job(config, tmp_path):
    """A job on two machines."""
    (tmp_path / "hosts").write_text("node0 slots=8\nnode1 slots=8\n")
    config["experiment"]["runner"]["hostfile"] = str(tmp_path / "hosts")
    config["experiment"]["envs"] = {"CUDA_VISIBLE_DEVICES": "0,1"}
    config["train"]["system"]["save_interval"] = 5
    return config


@pytest.fixture
def opened():
    """(list of the runners made, what makes them)"""
    runners = []

    def open_runner(root, job):
        runners.append(Runner(root, job))
        return runners[-1]

    return runners, open_runner


def dispatched(job, action, open_runner) -> int:
    return dispatch(make_plan(read_job(job | {"action": action}, "/"), {}), open_runner)


@pytest.mark.parametrize(
    ("action", "calls"),
    [
        ("run", [("run", {"dryrun": False, "with_test": False})]),
        ("dryrun", [("run", {"dryrun": True, "with_test": False})]),
        ("test", [("run", {"dryrun": False, "with_test": True})]),
        ("query", []),
    ],
)
def test_actions_are_flagscales(job, opened, capsys, tmp_path, action, calls) -> None:
    runners, open_runner = opened
    assert dispatched(job, action, open_runner) == 0
    assert runners[0].calls == calls
    assert runners[0].root == str(tmp_path / "FlagScale")
    assert capsys.readouterr().out == ("RUNNING\n" if action == "query" else "")


def test_configuration_is_in_flagscales_form(job, tmp_path) -> None:
    job["train"]["system"] |= {
        "perf_memory_tracking": False,
        "fp16": False,
        "save": "ckpt",
        "load": None,
        "tensorboard_dir": "tb",
    }
    exp = f"{tmp_path}/exp"
    assert flagscale_config(make_plan(read_job(job, "/"), {}), "/hosts") == {
        "action": "run",
        "experiment": {
            "exp_dir": exp,
            "envs": {
                "CUDA_DEVICE_MAX_CONNECTIONS": "1",
                "CUDA_VISIBLE_DEVICES": "0,1",
                "FLAGSCALE_PERF_ENTRYPOINT": f"{tmp_path}/FlagScale/flagscale/train/train_gpt.py",
            },
            "cmds": {},
            "runner": {
                "type": "ssh",
                "backend": "torchrun",
                "nnodes": 1,
                "nproc_per_node": 2,
                "hostfile": "/hosts",
            },
            "task": {"type": "train", "backend": "megatron", "entrypoint": entrypoint.__file__},
        },
        "train": {
            "system": {
                "enable_perf_monitor": True,
                "no_perf_memory_tracking": True,
                "perf_log_dir": f"{exp}/logs/perf_monitor",
                "fp16": False,
                "save_interval": 5,
                "num_layers": 2,
                "checkpoint": {"save": f"{exp}/ckpt"},
                "logging": {"log_dir": f"{exp}/logs", "tensorboard_dir": f"{exp}/tb"},
            },
            "model": {},
            "data": {},
        },
    }


STRICT = "use only letters, digits and ._/=:,@%+-"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("train.system.perf_log_dir", "/a b"),
        ("train.system.tensorboard_dir", "/a;b"),
        ("experiment.envs.A", "a b"),
        ("experiment.runner.rdzv_id", "$(x)"),
        ("experiment.exp_dir", "/a b"),
    ],
)
def test_what_flagscale_would_harm_is_refused(job, opened, path, value) -> None:
    *sections, key = path.split(".")
    section = job
    for name in sections:
        section = section[name]
    section[key] = value
    with pytest.raises(PerfError) as refusal:
        dispatched(job, "run", opened[1])
    assert str(refusal.value) == f"{path}: FlagScale's runner would harm {value!r}; {STRICT}"
    assert opened[0] == []


@pytest.mark.parametrize("value", ["$(x)", "`x`", '"', "'", "\\", "a\nb"])
def test_what_flagscale_would_execute_is_refused_in_any_option(job, opened, value) -> None:
    job["train"]["model"]["moe_layer_freq"] = value
    with pytest.raises(PerfError) as refusal:
        dispatched(job, "run", opened[1])
    assert str(refusal.value) == (
        f"train.model.moe_layer_freq: FlagScale's runner would harm {value!r}; leave out quotes, "
        "backticks, $, \\ and newlines"
    )


def test_options_of_the_host_may_hold_what_flagscale_quotes_well(job, opened) -> None:
    job["train"]["model"]["moe_layer_freq"] = "([0]*1+[1]*26)"
    assert dispatched(job, "run", opened[1]) == 0


def test_stop_waits_for_every_machines_pid_file(job, opened, tmp_path) -> None:
    runners, open_runner = opened
    pids = tmp_path / "exp" / "logs" / "pids"
    pids.mkdir(parents=True)
    (pids / "host_0_node0.pid").write_text("1")
    with pytest.raises(PerfError) as refusal:
        dispatched(job, "stop", open_runner)
    assert str(refusal.value) == (
        f"action=stop: '{pids}/host_1_node1.pid' is not there, and without it FlagScale would stop "
        "every torchrun of node1;"
        " stop it there by hand"
    )
    assert runners[-1].calls == []
    (pids / "host_1_node1.pid").write_text("1")
    assert dispatched(job, "stop", open_runner) == 0
    assert runners[-1].calls == [("stop", {})]


@pytest.mark.parametrize(
    "error", [subprocess.CalledProcessError(1, "bash x"), ValueError("Invalid entry in hostfile: x.")]
)
def test_failure_of_flagscales_runner_is_told_without_traceback(job, error) -> None:
    def fail(root, job):
        raise error

    with pytest.raises(PerfError) as refusal:
        dispatched(job, "run", fail)
    assert (
        str(refusal.value) == f"action=run: FlagScale's runner failed: {error}; its own messages stand above"
    )


def test_missing_interval_hostfile_devices_and_flagscale_are_refused(job, opened, tmp_path) -> None:
    job["train"]["system"]["save_interval"] = None
    with pytest.raises(
        PerfError,
        match=r"^train.system.save_interval: FlagScale's runner always saves checkpoints; add train.system",
    ):
        dispatched(job, "run", opened[1])
    job["train"]["system"]["save_interval"] = 5
    job["experiment"]["envs"] = {}
    with pytest.raises(
        PerfError,
        match=r"^experiment.envs: FlagScale's runner needs the devices of a machine; add for example",
    ):
        dispatched(job, "run", opened[1])
    with pytest.raises(
        PerfError,
        match="several machines need FlagScale, which is not installed; .* -m pip install --no-deps ",
    ):
        dispatch(replace(make_plan(read_job(job, "/"), {}), root=None), opened[1])
    job["experiment"]["runner"]["hostfile"] = str(tmp_path / "none")
    with pytest.raises(
        PerfError,
        match=(
            r"^experiment.runner.hostfile: no file '.*none'; write one line `HOST slots=N` for each "
            r"machine$"
        ),
    ):
        dispatched(job, "run", opened[1])


@pytest.mark.parametrize(
    "name",
    [
        *("$(touch,pwned)", "`x`", "a;b", "a&b", "a|b", "-oProxyCommand=x", "a'b", 'a"b', "../a"),
        *("a/b", "a>b", "a*", "a\\b", "\u202ea", "é", "{a,b}"),
    ],
)
@pytest.mark.parametrize(
    "line", ["{} slots=8", "node0 slots=8 type={}", "  {}  slots=1   type=A100 # the last"]
)
def test_names_of_hosts_that_a_shell_or_ssh_would_take_for_more_are_refused(
    job, opened, tmp_path, line, name
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(f"# the {name} nodes\nnode1 slots=8 type=A100\n\n{line.format(name)}\n")
    with pytest.raises(PerfError) as refusal:
        dispatched(job, "run", opened[1])
    assert str(refusal.value) == (
        f"experiment.runner.hostfile: line 4 of '{hosts}': FlagScale's runner would harm {name!r}; use "
        "only letters, digits and ._:@%-"
    )
    assert opened[0] == []


def test_names_that_hosts_have_pass(job, opened, tmp_path) -> None:
    (tmp_path / "hosts").write_text(
        "# two\nworker-0.cluster_a slots=8 type=A100\nme@10.0.0.1 slots=8 type=BI-V150\nfe80::1%eth0 "
        "slots=8 # last\n"
    )
    assert dispatched(job, "run", opened[1]) == 0


def test_a_hostfile_that_cannot_be_read_is_refused(job, opened, monkeypatch) -> None:
    def fail(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cluster, "open", fail, raising=False)
    with pytest.raises(
        PerfError,
        match=(
            r"^experiment.runner.hostfile: cannot read '.*hosts': Permission denied; give a file that can "
            r"be read$"
        ),
    ):
        dispatched(job, "run", opened[1])
