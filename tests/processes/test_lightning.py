"""The real Trainer of Lightning, in unmodified scripts, against what they count themselves."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from flagscale_perf import ModelShape, open_run, step_flops
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.training.records import PhaseRecord
from tests.processes import test_hf_trainer as hf

pytestmark = [pytest.mark.host, pytest.mark.other_host]
SHARE = Path(sys.prefix) / "share" / "lightning"
SCRIPT = Path(__file__).with_name("lightning_train.py")
STEPS, SEQUENCE = 6, 32
FORWARD_PHASES = ("data_loading_ns", "forward_ns", "backward_ns", "zero_grad_ns", "optimizer_ns")


def train(directory: Path, *words: str, **variables: str) -> hf.Trained:
    path = os.pathsep.join(map(str, (hf.REPO, SHARE, directory)))
    return hf.train(directory, *words, path=path, **variables)


def test_an_unmodified_script_is_recorded_as_it_counts_itself(tmp_path: Path) -> None:
    alone = train(tmp_path, str(SCRIPT))
    found = train(tmp_path, *hf.LAUNCH, str(SCRIPT), **hf.ON)
    run = open_run(found.records)
    steps = hf.steps_of(run)
    assert found.told["losses"] == alone.told["losses"] and len(alone.told["losses"]) == 2 * STEPS
    assert [step.iteration for step in steps] == [*range(1, STEPS + 1)]
    assert sum(step.tokens for step in steps) == found.told["tokens"]
    assert {(step.samples, step.microbatches) for step in steps} == {(4, 2)}
    assert steps[-1].model_flops == step_flops(ModelShape.from_hf(hf.SHAPE), 4, SEQUENCE).model_flops
    pauses_s = sum(each.eval_ns for each in steps) / 1e9
    assert pauses_s >= sum(found.told["evaluations_s"]) > 0.8 * pauses_s - 0.1
    assert [step.iteration for step in steps if step.checkpoint_ns] == [2, 4, 6]
    phases = [each for each in run.records() if isinstance(each, PhaseRecord)]
    assert all(getattr(each, name) for each in phases for name in FORWARD_PHASES) and len(phases) == STEPS
    assert (run.facts.host, run.facts.train_iters) == ("lightning 2.6.6 Trainer", STEPS)
    assert [each.reason for each in run.records() if isinstance(each, RunEnd)] == ["completed"]


def test_two_ranks(tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    alone = train(tmp_path / "alone", *hf.TORCHRUN, str(SCRIPT))
    found = train(tmp_path, *hf.TORCHRUN, *hf.LAUNCH, str(SCRIPT), **hf.ON)
    run = open_run(found.records)
    assert found.told["losses"] == alone.told["losses"]
    assert sum(step.tokens for step in hf.steps_of(run)) == 2 * found.told["tokens"]
    assert run.facts.data_parallel == 2
    assert "work of other ranks' as rank 0's" in found.output
    report = run.report()
    assert report.ranks is not None and len(report.ranks.entries) == 2


def test_what_is_no_language_model_has_samples_and_no_tokens(tmp_path: Path) -> None:
    # as in an environment after `flagscale-perf enable`
    (tmp_path / "sitecustomize.py").write_text("import flagscale_perf.hosts.autostart as it; it.start()")
    found = train(tmp_path, str(SCRIPT), "--pairs", **hf.ON)
    run = open_run(found.records)
    assert {(step.samples, step.tokens, step.model_flops) for step in hf.steps_of(run)} == {(4, 0, None)}
    assert "not available: tokens (the batches have no input_ids of two dimensions)" in found.output
    assert "TFLOPS, MFU and HFU (model: Module is no language model of transformers)" in found.output
    figures = run.report().figures
    assert figures.tokens is figures.tokens_per_s is None


def test_under_manual_optimization_a_batch_is_a_step_however_many_optimizers(tmp_path: Path) -> None:
    found = train(tmp_path, *hf.LAUNCH, str(SCRIPT), "--manual", **hf.ON)
    run = open_run(found.records)
    steps = hf.steps_of(run)
    assert [step.iteration for step in steps] == [*range(1, STEPS + 1)]
    assert sum(step.tokens for step in steps) == found.told["tokens"]
    phases = [each for each in run.records() if isinstance(each, PhaseRecord)]
    assert all(each.forward_ns and each.backward_ns and each.optimizer_ns for each in phases)
    assert run.facts.train_iters is None
