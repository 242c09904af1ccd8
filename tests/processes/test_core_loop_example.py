"""examples/megatron_core_loop, as it is, with the Megatron-Core of PyPI and with the one FlagScale brings
along.
"""

import os
import re
import sys
from pathlib import Path

import pytest

from flagscale_perf.flops_calculator import ModelShape, step_flops
from flagscale_perf.training.records import Outcome
from tests.processes import flagscale as fs
from tests.processes.profiled_shapes import check_profile
from tests.processes.test_flagscale_run import assert_phases_add_up

pytestmark = pytest.mark.host

REPO = Path(__file__).parents[2]
SCRIPT = REPO / "examples" / "megatron_core_loop" / "train.py"
PHASES = ["--perf-breakdown", "--perf-max-overhead", "100"]
NEWER_CORE = [Path(sys.prefix) / "share" / "megatron-core"]
SHAPE = ModelShape.from_args(
    {
        "num_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "padded_vocab_size": 512,
        "max_position_embeddings": 64,
    }
)


def train(directory, ranks, cores, *words):
    path = os.pathsep.join(map(str, (REPO, *cores)))
    return fs.run(fs.workers(ranks, *fs.launched(SCRIPT, *words)), directory, PYTHONPATH=path)


def losses(run):
    """Of each iteration, to the last digit; torch's profiler and the other rank may share the line."""
    return re.findall(r"iteration \d+ loss \d+\.\d+", run.output)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Directory of two ranks' runs, and both without and with everything."""
    directory = tmp_path_factory.mktemp("trained")
    words = ["--train-iters", "6", "--eval-interval", "3", "--save-interval", "4", "--checkpoint"]
    monitor = ["--enable-perf-monitor", *PHASES, "--perf-profile-steps", "3", "--perf-log-dir", "perf"]
    off = train(directory, 2, NEWER_CORE, *words, directory / "off.pt")
    on = train(directory, 2, NEWER_CORE, *words, directory / "on.pt", *monitor)
    assert (off.returncode, on.returncode) == (0, 0), off.output[-3000:] + on.output[-3000:]
    return directory, off, on


def test_two_ranks_train_the_same_and_every_block_is_in_the_records(trained):
    directory, off, on = trained
    assert len(losses(on)) == 6 and losses(on) == losses(off)
    perf = directory / "perf"
    steps = fs.records(perf)
    assert [step["iteration"] for step in steps] == [1, 2, 3, 4, 5, 6]
    assert [(step["samples"], step["tokens"], step["microbatches"]) for step in steps] == [(8, 512, 2)] * 6
    assert [step["eval_ns"] > 0 for step in steps] == [False, False, True, False, False, True]
    assert [step["checkpoint_ns"] > 0 for step in steps] == [False, False, False, True, False, False]
    assert {(step["model_flops"], step["hardware_flops"]) for step in steps} == {
        tuple(step_flops(SHAPE, 8, 64))
    }
    assert {step["outcome"] for step in steps} == {Outcome.TRAINED}
    named = assert_phases_add_up(fs.records(perf, "phases"), steps)
    assert {
        "data_loading_ns",
        "forward_ns",
        "backward_ns",
        "exposed_grad_comm_ns",
        "zero_grad_ns",
        "optimizer_inner_step_ns",
    } <= named
    facts = fs.records(perf, "header")[0]["facts"]
    assert (facts["host"], facts["data_parallel"], facts["rehearsal"]) == ("Megatron-Core 0.16.1", 2, True)
    assert facts["missing"] == [fs.NO_COUNTERS]
    assert fs.summary(perf)["session_info"]["end_reason"] == "completed"


def test_its_profile_has_rows_for_every_layer_and_its_collectives(trained):
    directory, _, _ = trained
    for profile in check_profile(directory / "perf", 512, [{0, 1}] * 2).values():
        assert {("DP", "all_reduce"), ("TP", "all_reduce")} <= set(profile.collectives)


def test_a_second_session_goes_on_where_the_checkpoint_is_also_on_an_older_core(tmp_path):
    older_core = [fs.root(), fs.root() / "third_party" / "Megatron-LM"]
    words = [
        "--enable-perf-monitor",
        "--save-interval",
        "2",
        "--checkpoint",
        tmp_path / "weights.pt",
        "--perf-log-dir",
    ]
    first = train(tmp_path, 1, older_core, *words, "first", "--train-iters", "4")
    second = train(tmp_path, 1, older_core, *words, "second", "--train-iters", "6")
    assert (first.returncode, second.returncode) == (0, 0), first.output[-3000:] + second.output[-3000:]
    assert [step["iteration"] for step in fs.records(tmp_path / "first")] == [1, 2, 3, 4]
    resumed = fs.records(tmp_path / "second")
    assert [step["iteration"] for step in resumed] == [5, 6]
    assert [step["skipped_samples"] for step in resumed] == [0, 0]
    facts = fs.records(tmp_path / "second", "header")[0]["facts"]
    assert (facts["host"], facts["resume_iteration"]) == ("Megatron-Core 0.15.0rc5", 4)
