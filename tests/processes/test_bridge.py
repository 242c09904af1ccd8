"""The real Megatron-Bridge 0.3.1 on the CPU, its script unmodified, with and without the monitor."""

import json
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import Job
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.store.run_file import RunFile
from flagscale_perf.training.analysis.history import stitch
from flagscale_perf.training.records import Outcome, PhaseRecord, StepRecord
from tests.processes import flagscale as fs
from tests.processes.profiled_shapes import check_profile
from tests.processes.test_flagscale_faults import SCRIPT as INJECTING
from tests.processes.test_flagscale_run import assert_phases_add_up

pytestmark = [pytest.mark.host, pytest.mark.other_host]

REPO = Path(__file__).parents[2]
SHARE = Path(sys.prefix) / "share"
SCRIPT = Path(__file__).with_name("bridge") / "train.py"
PHASES = {"FLAGSCALE_PERF_BREAKDOWN": "1", "FLAGSCALE_PERF_MAX_OVERHEAD": "100"}
ON = {
    "FLAGSCALE_PERF_ENABLE_MONITOR": "1",
    "FLAGSCALE_PERF_LOG_INTERVAL": "2",
    "FLAGSCALE_PERF_LOG_DIR": "perf",
}
SHAPES = {"1 rank": (1, {}), "PP2": (2, {"pp": 2})}


def train(directory, ranks, options, *overrides, **env):
    """One run in `directory`, which must be there."""
    path = os.pathsep.join(
        map(str, (REPO, SHARE / "megatron-bridge", SHARE / "megatron-core", SCRIPT.parent))
    )
    (directory / "inject.py").write_text(INJECTING)
    command = fs.workers(ranks, *fs.launched("inject.py", SCRIPT, json.dumps(options), *overrides))
    return fs.run(command, directory, PYTHONPATH=path, **env)


@pytest.mark.parametrize("shape", [*SHAPES, pytest.param("TP2", marks=pytest.mark.long)])
def test_bridge_trains_the_same_and_the_records_are_its_own_integers(shape, tmp_path):
    ranks, options = SHAPES.get(shape, (2, {"tp": 2}))
    given = options | {"train_iters": 6, "callbacks": "list" if ranks == 1 else None}
    (tmp_path / "off").mkdir()
    (tmp_path / "on").mkdir()
    off = train(tmp_path / "off", ranks, given)
    on = train(tmp_path / "on", ranks, given, **ON, **PHASES, FLAGSCALE_PERF_PROFILE_STEPS="3")
    assert (off.returncode, on.returncode) == (0, 0), off.output[-3000:] + on.output[-3000:]

    perf = tmp_path / "on" / "perf"
    losses = fs.host_losses(tmp_path / "on" / "tb")
    assert [step for step, _ in losses] == [1, 2, 3, 4, 5, 6]
    assert losses == fs.host_losses(tmp_path / "off" / "tb")
    assert on.lines == off.lines
    assert on.output.count("told of step") == off.output.count("told of step") == (6 if ranks == 1 else 0)
    assert not (tmp_path / "off" / "perf").exists()

    steps = fs.records(perf)
    assert (
        [step["iteration"] for step in steps] == [line.iteration for line in on.logged] == [1, 2, 3, 4, 5, 6]
    )
    assert [(step["samples"], step["tokens"], step["microbatches"]) for step in steps] == [(4, 256, 2)] * 6
    assert [line.consumed for line in on.logged] == [4, 8, 12, 16, 20, 24]
    assert [step["eval_ns"] > 0 for step in steps] == [False, False, True] * 2
    assert len({step["model_flops"] for step in steps}) == 1 and steps[0]["model_flops"] > 0
    facts = fs.records(perf, "header")[0]["facts"]
    assert (facts["host"], facts["world_size"]) == ("Megatron-Bridge 0.3.1", ranks)
    assert (facts["tensor_parallel"], facts["pipeline_parallel"], facts["data_parallel"]) == (
        options.get("tp", 1),
        options.get("pp", 1),
        1,
    )
    assert (facts["model"]["vocab"], facts["model"]["micro_batch"], facts["missing"]) == (
        8064,
        2,
        [fs.NO_COUNTERS],
    )
    assert fs.summary(perf)["session_info"]["end_reason"] == "completed"
    rows = fs.records(perf, "phases")
    named = assert_phases_add_up(rows, steps)
    assert {
        "data_loading_ns",
        "forward_ns",
        "backward_ns",
        "optimizer_inner_step_ns",
        "zero_grad_ns",
        "exposed_stat_comm_ns",
    } <= named
    assert ("pipeline_recv_wait_ns" in named) == (shape == "PP2")
    others = [row["other_ns"] / step["iteration_ns"] for row, step in zip(rows, steps, strict=True)]
    assert statistics.median(others) <= 0.02, others
    check_profile(perf, 4 * 64, [{0}, {1}] if shape == "PP2" else [{0, 1}] * ranks)


def test_a_restart_inside_the_process_goes_on_in_a_second_session_with_phases(tmp_path):
    options = {
        "train_iters": 7,
        "save": str(tmp_path / "checkpoints"),
        "save_interval": 4,
        "eval_interval": 100,
    }
    finished = train(tmp_path, 1, options | {"fault": 5}, **ON, **PHASES)
    assert finished.returncode == 0, finished.output[-3000:]
    assert [line.iteration for line in finished.logged] == [1, 2, 3, 4, 5, 5, 6, 7]
    first, second = (RunFile(path) for path in sorted((tmp_path / "perf").glob("perf_records_*.jsonl")))
    done = [[record for record in run if isinstance(record, StepRecord)] for run in (first, second)]
    # the fault was in step 6, which did not end; the last checkpoint is of step 4
    assert [[step.iteration for step in steps] for steps in done] == [[1, 2, 3, 4, 5], [5, 6, 7]]
    assert [step.warmup for step in done[1]] == [1, 0, 0]
    assert [step.skipped_samples for steps in done for step in steps] == [0] * 8
    assert {step.samples for steps in done for step in steps} == {4}
    ends = [[record.reason for record in run if isinstance(record, RunEnd)] for run in (first, second)]
    assert ends == [["exception ConnectionError"], ["completed"]]
    measured = [
        record.iteration for record in second if isinstance(record, PhaseRecord) and record.forward_ns
    ]
    assert measured == [5, 6, 7], "the timers that the restart made anew are not ours"
    history = stitch(Job(tmp_path / "perf").sessions())
    assert [session.redone for session in history.sessions] == [1, 0]
    assert history.goodput.data_stall_ns is not None


def test_a_planned_exit_is_an_end_and_a_resume_goes_on(tmp_path):
    options = {
        "train_iters": 7,
        "save": str(tmp_path / "checkpoints"),
        "save_interval": 4,
        "eval_interval": 100,
        "callbacks": "manager",
    }
    first = train(
        tmp_path, 1, options | {"exit_interval": 4, "skip": [1]}, **ON | {"FLAGSCALE_PERF_LOG_DIR": "first"}
    )
    second = train(tmp_path, 1, options, **ON | {"FLAGSCALE_PERF_LOG_DIR": "second"})
    assert (first.returncode, second.returncode) == (0, 0), first.output[-3000:] + second.output[-3000:]
    assert fs.summary(tmp_path / "first")["session_info"]["end_reason"] == "completed"
    steps = fs.records(tmp_path / "first")
    skipped, trained = Outcome.DATA_SKIPPED, Outcome.TRAINED
    assert [(step["iteration"], step["outcome"]) for step in steps] == [
        (1, trained),
        (2, skipped),
        (3, trained),
        (4, trained),
    ]
    assert [(step["samples"], step["skipped_samples"]) for step in steps] == [(4, 0), (0, 4), (4, 0), (4, 0)]
    assert steps[3]["checkpoint_ns"] > 0
    resumed = fs.records(tmp_path / "second")
    assert [step["iteration"] for step in resumed] == [5, 6, 7]
    assert [step["samples"] for step in resumed] == [4, 4, 4]
    assert fs.records(tmp_path / "second", "header")[0]["facts"]["resume_iteration"] == 4


def test_the_patch_is_overrides_that_bridge_takes_and_compare_names_them(tmp_path):
    options = {"train_iters": 40, "eval_interval": 8, "eval_iters": 24}
    base, new = tmp_path / "base", tmp_path / "new"
    base.mkdir()
    new.mkdir()
    finished = train(base, 1, options, **ON)
    assert finished.returncode == 0, finished.output[-3000:]
    words = shlex.split(printed("report", base / "perf", "--patch"), comments=True)
    assert {"train.eval_interval=16", "train.eval_iters=12"} <= set(words)
    finished = train(new, 1, options, *words, **ON)
    assert finished.returncode == 0, finished.output[-3000:]
    evaluated = [[step["eval_ns"] > 0 for step in fs.records(each / "perf")] for each in (base, new)]
    assert [sum(each) for each in evaluated] == [5, 2]
    (header,) = fs.records(new / "perf", "header")
    arguments = header["facts"]["arguments"]
    assert (arguments["train.eval_interval"], arguments["train.eval_iters"]) == (16, 12)
    said = " ".join(printed("compare", base / "perf", new / "perf").split())
    assert f"of what BASE's findings advise NEW has {', '.join(words)}" in said
    assert "train.eval_interval" in said


def printed(*words):
    command = [sys.executable, "-m", "flagscale_perf", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=fs.DEADLINE_S)
    assert not done.stderr, done.stderr
    return done.stdout


def test_a_wrong_option_ends_before_anything_is_set_up(tmp_path):
    refused = train(tmp_path, 1, {"train_iters": 2}, **ON | {"FLAGSCALE_PERF_LOG_INTERVAL": "never"})
    assert refused.returncode != 0
    assert (
        "flagscale_perf: error: FLAGSCALE_PERF_LOG_INTERVAL: 'never' is not a whole number" in refused.output
    )
    assert "initializing torch distributed" not in refused.output


@pytest.mark.parametrize("method", ["__init__", "position", "numbers"])
def test_a_failure_of_ours_in_a_callback_does_not_end_the_training(method, tmp_path):
    on = ON | {"INJECT": f"flagscale_perf.hosts.bridge:BridgeLoop:{method}"}
    finished = train(tmp_path, 1, {"train_iters": 2, "eval_interval": 100}, **on)
    assert finished.returncode == 0, finished.output[-3000:]
    assert [line.iteration for line in finished.logged] == [1, 2]
    assert finished.output.count("flagscale_perf: monitor switched off at ") == 1
