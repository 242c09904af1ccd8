"""`run.py -m KEY=A,B` as typed: each job has its turn, none is hidden, and none writes over another."""

import re

import pytest

from tests.processes.test_run_py import STAND_IN_TASK, run_py, starts

__all__ = ["run_py", "starts"]

SIZES = "train.model.micro_batch_size=1,2"
APART = "experiment.exp_dir=E/${hydra.job.num}"
PLUGIN = """
from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.config_store import ConfigStore
class ElsewhereLauncher(BasicLauncher):
    pass
node = {"_target_": "hydra_plugins.elsewhere.ElsewhereLauncher"}
ConfigStore.instance().store(group="hydra/launcher", name="elsewhere", node=node, provider="elsewhere")
"""


@pytest.mark.parametrize(
    "apart", [APART, pytest.param("experiment.exp_dir=E/${hydra:job.num}", marks=pytest.mark.long)]
)
def test_every_job_runs_and_one_that_fails_is_named(run_py, starts, tmp_path, apart) -> None:
    done = run_py("-m", *STAND_IN_TASK, SIZES, "+experiment.envs.EXIT_WITH=0,3", apart)
    sizes = [start["argv"][start["argv"].index("--micro-batch-size") + 1] for start in starts()]
    assert (sizes, done.returncode, done.stderr) == (["1", "1", "2", "2"], 1, "")
    headings = [
        line for line in done.stdout.splitlines() if re.match(r"job \d of|failed with|\d of \d", line)
    ]
    assert headings == [
        "job 1 of 4: train.model.micro_batch_size=1 +experiment.envs.EXIT_WITH=0",
        "job 2 of 4: train.model.micro_batch_size=1 +experiment.envs.EXIT_WITH=3",
        "job 3 of 4: train.model.micro_batch_size=2 +experiment.envs.EXIT_WITH=0",
        "job 4 of 4: train.model.micro_batch_size=2 +experiment.envs.EXIT_WITH=3",
        "failed with exit status 1: train.model.micro_batch_size=1 +experiment.envs.EXIT_WITH=3",
        "failed with exit status 1: train.model.micro_batch_size=2 +experiment.envs.EXIT_WITH=3",
        "2 of 4 jobs of the sweep ended well",
    ]
    assert sorted(path.name for path in (tmp_path / "E").iterdir()) == ["0", "1", "2", "3"]
    assert not (tmp_path / "multirun").exists()


def test_dryrun_writes_every_script_and_query_asks_for_every_job(run_py, tmp_path) -> None:
    typed = ["-m", *STAND_IN_TASK, SIZES, "experiment.exp_dir=E/${train.model.micro_batch_size}"]
    assert run_py(*typed, "action=dryrun").returncode == 0
    scripts = [(tmp_path / f"E/{size}/logs/scripts/host_0_localhost_run.sh").read_text() for size in (1, 2)]
    assert ["--micro-batch-size 1" in scripts[0], "--micro-batch-size 2" in scripts[1]] == [True, True]
    asked = run_py(*typed, "action=query")
    assert (asked.returncode, asked.stdout.count("never started")) == (0, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["E", "stand_in.py"]


@pytest.mark.parametrize(
    ("typed", "refusal"),
    [
        (
            ["experiment.exp_dir=E"],
            "experiment.exp_dir: the jobs 'train.model.micro_batch_size=1' and"
            " 'train.model.micro_batch_size=2' of this sweep would both write into '{here}/E'; give each its"
            " own, for example experiment.exp_dir='./outputs/${{hydra.job.num}}'",
        ),
        (
            [APART, "train.system.logging.tensorboard_dir={here}/curves"],
            "train.system.logging.tensorboard_dir: the jobs 'train.model.micro_batch_size=1' and"
            " 'train.model.micro_batch_size=2' of this sweep would both write into '{here}/curves'; give each"
            " its own, for example experiment.exp_dir='./outputs/${{hydra.job.num}}'",
        ),
        (
            [APART, "experiment.runner.background=true"],
            "experiment.runner.background: the jobs of a sweep run one after another, and with it all would"
            " be started at once on the same devices; write experiment.runner.background=null, or start them"
            " one by one",
        ),
        (
            [APART, "hydra/launcher=elsewhere"],
            "hydra/launcher: ElsewhereLauncher is not supported: run.py starts the jobs itself, one after"
            " another, with the values that commas name; leave hydra/launcher out",
        ),
        (
            [APART, "action=run,fly"],
            "action: 'fly' is not one of run, dryrun, test, stop, query; write for example action=run",
        ),
    ],
    ids=["exp_dir", "curves", "background", "launcher", "the last is wrong"],
)
def test_what_cannot_be_right_is_refused_before_the_first_job(
    run_py, starts, tmp_path, monkeypatch, typed, refusal
) -> None:
    plugin = tmp_path / "plugins" / "hydra_plugins" / "elsewhere" / "__init__.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(PLUGIN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "plugins"), prepend=":")
    refused = run_py(
        "-m",
        *STAND_IN_TASK,
        SIZES,
        *(word.format(here=tmp_path) if "{here}" in word else word for word in typed),
    )
    assert (refused.returncode, refused.stdout, refused.stderr) == (
        2,
        "",
        f"run.py: {refusal.format(here=tmp_path)}\n",
    )
    assert (starts(), (tmp_path / "E").exists(), (tmp_path / "multirun").exists()) == ([], False, False)
