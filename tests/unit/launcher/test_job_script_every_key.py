"""Hostile text in every key that conf/ names and in those of torchrun and FlagScale that people add: refused,
or passed on byte by byte.
"""

from __future__ import annotations

import copy
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from flagscale_perf.launcher.actions import perform
from flagscale_perf.launcher.config import PERF_KEYS, read_job
from flagscale_perf.launcher.job import write_script
from flagscale_perf.launcher.plan import make_plan
from flagscale_perf.spine.errors import PerfError

CONF = Path(__file__).parents[3] / "conf"
HOSTILE = [
    "a b'\"$(touch pwned)`touch pwned`;touch pwned&touch pwned|touch pwned>pwned #\\",
    "x\ntouch pwned\n",
    "-oProxyCommand=touch pwned",
    "é\u202e\x1b[2J\x7f$HOME${HOME}*?~!{a,b}",
]
ADDED = [
    *("rdzv_id", "rdzv_endpoint", "rdzv_backend", "rdzv_conf", "master_addr", "master_port", "node_rank"),
    *("max_restarts", "log_dir", "ssh_port", "no_shared_fs", "per_node_task", "enable_monitoring", "tee"),
    *("redirects", "local_addr", "role"),
]
BY_HAND = [
    *(f"experiment.runner.{key}" for key in ADDED),
    *(f"experiment.envs.{name}" for name in ("PATH", "ANY", "FLAGSCALE_HOME", "FLAGSCALE_PERF_LOG_DIR")),
    *(f"train.system.logging.{key}" for key in ("log_dir", "wandb_exp_name", "wandb_save_dir")),
    *("train.system.wandb_project", "train.model.any", "train.data.tokenizer_path"),
]
SHELL_CODE = "experiment.cmds.before_start"  # by intention


def leaves(section: Any, path: str) -> Iterator[str]:
    if isinstance(section, dict):
        for key, value in section.items():
            yield from leaves(value, f"{path}.{key}")
    else:
        yield path


def every_key() -> list[str]:
    found = [*leaves(yaml.safe_load((CONF / "train.yaml").read_text())["experiment"], "experiment"), *BY_HAND]
    for name in ("demo_llama", "7b"):
        found += leaves(yaml.safe_load((CONF / "train" / f"{name}.yaml").read_text()), "train")
    return sorted({*found, *(f"train.system.{key}" for key in PERF_KEYS)} - {SHELL_CODE})


def with_value(config: dict[str, Any], path: str, value: str) -> dict[str, Any]:
    changed = copy.deepcopy(config)
    place: Any = changed
    *outer, key = path.split(".")
    for name in outer:
        place = place.setdefault(name, {})
    place[key] = value
    return changed


@pytest.mark.parametrize("path", every_key())
def test_hostile_text_is_refused_or_arrives_and_runs_nothing(config, tmp_path, path) -> None:
    arguments = tmp_path / "noting python"
    arguments.write_text('#!/bin/bash\nprintf "%s\\0" "$@" >"$SEEN"\n')
    arguments.chmod(0o755)
    config["experiment"]["task"]["python"] = str(arguments)
    for value in HOSTILE:
        try:
            plan = make_plan(read_job(with_value(config, path, value), str(tmp_path)), {})
            script = write_script(plan)
        except PerfError as refusal:
            assert path.rpartition(".")[2].replace("_", "-") in str(refusal).replace("_", "-")
            continue
        env = {"PATH": os.environ["PATH"], "SEEN": str(tmp_path / "seen")}
        done = subprocess.run(["/bin/bash", script], env=env, cwd=tmp_path, capture_output=True, check=False)
        if path == "experiment.task.python":
            assert done.returncode in (126, 127)
        else:
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
            assert (tmp_path / "seen").read_bytes() == b"".join(
                os.fsencode(word) + b"\0" for word in plan.command[1:]
            )
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("value", [*HOSTILE, [], {}, ["run"], None, 1, True, "", "start"])
def test_an_action_that_is_none_is_refused(config, value) -> None:
    def no_runner(root: str, job: dict[str, Any]) -> Any:
        pytest.fail("no runner was to be made")

    with pytest.raises(PerfError) as refusal:
        perform(config | {"action": value}, no_runner)
    assert (
        str(refusal.value)
        == f"action: {value!r} is not one of run, dryrun, test, stop, query; write for example action=run"
    )


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostfile_that_is_none_is_refused_on_the_way_to_ssh(config, value) -> None:
    def no_runner(root: str, job: dict[str, Any]) -> Any:
        pytest.fail("no runner was to be made")

    config["experiment"]["runner"]["hostfile"] = value
    for action in ("run", "dryrun", "test", "stop", "query"):
        with pytest.raises(PerfError, match=r"^experiment.runner.hostfile: no file "):
            perform(config | {"action": action}, no_runner)


@pytest.mark.parametrize("path", [path for path in every_key() if path != "experiment.runner.hostfile"])
def test_what_reaches_flagscales_ssh_runner_is_refused_or_harmless_there(config, tmp_path, path) -> None:
    """Harmless: the runner's own way to a command line, `cmd="..."` around what shlex has joined, leaves the
    words as they are.
    """
    (tmp_path / "hosts").write_text("node0 slots=8\n")
    config["experiment"]["runner"]["hostfile"] = str(tmp_path / "hosts")
    config["experiment"]["envs"] = {"CUDA_VISIBLE_DEVICES": "0"}
    config["train"]["system"]["save_interval"] = 5
    expected, code = [], []
    for value in HOSTILE:
        jobs: list[dict[str, Any]] = []

        def open_runner(root: str, job: dict[str, Any], jobs: list[dict[str, Any]] = jobs) -> Any:
            jobs.append(job)
            return type("Runner", (), {"run": staticmethod(lambda **_: None)})

        try:
            perform(with_value(config, path, value) | {"action": "dryrun"}, open_runner)
        except PerfError:
            assert jobs == []
            continue
        texts = [str(leaf) for leaf in values(jobs)]
        expected += texts
        code.append(f'cmd="{shlex.join(texts)}"\nbash -c "printf \'%s\\0\' $cmd"\n')
    done = subprocess.run(
        ["/bin/bash", "-c", "".join(code)],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.stdout.decode().split("\0")[:-1] == expected
    assert not list(tmp_path.rglob("pwned"))


def values(found: Any) -> Iterator[Any]:
    if isinstance(found, dict):
        for value in found.values():
            yield from values(value)
    elif isinstance(found, list):
        for value in found:
            yield from values(value)
    else:
        yield found
