"""The real Trainer of transformers, in an unmodified script, against what that counts itself."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flagscale_perf import ModelShape, open_run, step_flops
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.training.records import StepRecord
from tests.processes import flagscale as fs
from tests.processes import warm
from tests.processes.hf_train import SEQUENCE, STEPS
from tests.warm_ranks import torchrun_environment

pytestmark = pytest.mark.host
REPO = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("hf_train.py")
ON = {"FLAGSCALE_PERF_ENABLE_MONITOR": "1", "FLAGSCALE_PERF_BREAKDOWN": "1"}
LAUNCH = ("-m", "flagscale_perf.launch")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
SHAPE = {
    **{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 2048},
}


class Trained(NamedTuple):
    told: dict[str, Any]
    output: str
    records: Path


def train(directory: Path, *words: str, path: str = str(REPO), **variables: str) -> Trained:
    """`python WORDS...` with this PYTHONPATH, warm, as are torchrun's ranks with the monitor; cold where a
    `sitecustomize.py` in the directory is to act.
    """
    command, environ = [sys.executable, *words], {"PYTHONPATH": path, "OMP_NUM_THREADS": warm.THREADS}
    if not (directory / "sitecustomize.py").exists():
        (site := directory / "site").mkdir(exist_ok=True)
        command, environ = fs.warm_python(*words), environ | torchrun_environment(site, path)
    environ = os.environ | environ | {"HF_HUB_OFFLINE": "1"} | variables
    done = subprocess.run(
        command, cwd=directory, env=environ, capture_output=True, text=True, timeout=fs.DEADLINE_S
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (told,) = (line.removeprefix("TOLD ") for line in done.stdout.splitlines() if line.startswith("TOLD "))
    return Trained(json.loads(told), done.stdout + done.stderr, directory / "logs/perf_monitor")


def steps_of(run: Any) -> list[StepRecord]:
    return [record for record in run.records() if isinstance(record, StepRecord)]


def test_an_unmodified_script_is_recorded_as_it_counts_itself(tmp_path: Path) -> None:
    alone = train(tmp_path, str(SCRIPT))
    found = train(tmp_path, *LAUNCH, str(SCRIPT), **ON)
    run = open_run(found.records)
    steps = steps_of(run)
    shape = ModelShape.from_hf(SHAPE)
    assert found.told["losses"] == alone.told["losses"]
    assert [step.iteration for step in steps] == [*range(1, STEPS + 1)]
    assert sum(step.tokens for step in steps) == found.told["tokens"]
    assert {(step.samples, step.microbatches) for step in steps} == {(4, 2)}
    assert steps[-1].model_flops == step_flops(shape, 4, SEQUENCE).model_flops
    pauses_s = sum(each.eval_ns for each in steps) / 1e9
    assert pauses_s >= sum(found.told["evaluations_s"]) > 0.8 * pauses_s - 0.1
    assert run.facts.host.startswith("transformers 5.")
    assert [each.reason for each in run.records() if isinstance(each, RunEnd)] == ["completed"]


def test_samples_of_varied_lengths_on_two_ranks(tmp_path: Path) -> None:
    """Every rank has its own; what all have is taken to be as rank 0's, and that is said."""
    found = train(tmp_path, *TORCHRUN, *LAUNCH, str(SCRIPT), "--varied", **ON)
    run = open_run(found.records)
    assert sum(step.rank_tokens for step in steps_of(run)) == found.told["tokens"]
    assert sum(step.tokens for step in steps_of(run)) == 2 * found.told["tokens"]
    assert len({step.tokens for step in steps_of(run)}) > 1
    assert {step.samples for step in steps_of(run)} == {8}
    assert "work of other ranks' as rank 0's" in found.output
    report = run.report()
    assert report.ranks is not None and len(report.ranks.entries) == 2


def test_the_patch_is_arguments_that_the_trainer_takes_and_compare_names_them(tmp_path: Path) -> None:
    base, new = tmp_path / "base", tmp_path / "new"
    given = ["--max_steps", "48", "--eval_steps", "6", "--per_device_eval_batch_size", "1"]
    given += ["--save_strategy", "no"]
    base.mkdir()
    new.mkdir()
    first = train(base, *LAUNCH, str(SCRIPT), *given, **ON)
    words = shlex.split(printed("report", first.records, "--patch"), comments=True)
    assert words[words.index("--eval_steps") + 1] == "12"
    second = train(new, *LAUNCH, str(SCRIPT), *given, *words, **ON)
    evaluated = [
        sum(step.eval_ns > 0 for step in steps_of(open_run(each.records))) for each in (first, second)
    ]
    assert evaluated == [8, 4]
    arguments = open_run(second.records).facts.arguments
    assert arguments is not None and arguments["eval_steps"] == 12
    said = " ".join(printed("compare", first.records, second.records).split())
    assert "of what BASE's findings advise NEW has" in said and "--eval_steps 12" in said


def printed(*words: object) -> str:
    command = [sys.executable, "-m", "flagscale_perf", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=fs.DEADLINE_S)
    assert not done.stderr, done.stderr
    return done.stdout


MODEL = "model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=100))"
CLASSES = {
    "LlamaForCausalLM": "LlamaForSequenceClassification",
    "vocab_size=100)": "vocab_size=100, pad_token_id=0)",
    "tokens.clone()": "tokens[0] % 2",
}
FROZEN = {MODEL: MODEL + "\n    model.lm_head.weight.requires_grad_(False)"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (FROZEN, "model: lm_head.weight is frozen"),
        (CLASSES, "model: LlamaForSequenceClassification is no language model of transformers"),
    ],
)
def test_a_model_whose_flops_cannot_be_counted(tmp_path: Path, changes: dict[str, str], reason: str) -> None:
    script, text = tmp_path / "changed.py", SCRIPT.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    script.write_text(text)
    found = train(tmp_path, *LAUNCH, str(script), **ON)
    assert f"TFLOPS, MFU and HFU ({reason}" in found.output
    assert {step.model_flops for step in steps_of(open_run(found.records))} == {None}
