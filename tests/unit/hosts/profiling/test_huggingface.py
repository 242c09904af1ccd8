"""A Qwen3 of random weights, trained by Hugging Face's Trainer and asked to generate."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM, Trainer, TrainingArguments

from flagscale_perf.hosts.profiling import huggingface
from flagscale_perf.hosts.profiling.huggingface import ProfilerCallback, forward_steps
from flagscale_perf.profile.options import ProfileOptions, Steps
from flagscale_perf.profile.profiler import Profiler
from flagscale_perf.profile.records import RankRecord, RowRecord, StepRecord, WindowRecord
from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.spine.records import Record

LAYERS = 2


class Kept:
    """A profiler whose records stay in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records: list[Record] = []

        def make(models: Any, options: ProfileOptions, *, rank: Any) -> Profiler:
            return Profiler(models, options, rank=rank, put=self.records.append)

        monkeypatch.setattr(huggingface, "Profiler", make)

    def of(self, kind: type[Any]) -> list[Any]:
        return [record for record in self.records if isinstance(record, kind)]

    def name(self, number: int) -> str:
        return {0: "", **{each.number: each.text for each in self.of(NameRecord)}}[number]

    def layers(self, phase: str) -> set[str]:
        """Decoder layers that have rows in steps of this phase."""
        paths = {self.name(row.module) for row in self.of(RowRecord) if self.name(row.step_phase) == phase}
        return {".".join(path.split(".")[:3]) for path in paths if path.startswith("model.layers.")}


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    return Kept(monkeypatch)


def model() -> Qwen3ForCausalLM:
    torch.manual_seed(16)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=LAYERS,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            max_position_embeddings=64,
        )
    )


def options(directory: Path, first: int, last: int) -> ProfileOptions:
    return ProfileOptions(Steps(first, last), directory)


def every_layer() -> set[str]:
    return {f"model.layers.{number}" for number in range(LAYERS)}


def closed(steps: Sequence[StepRecord]) -> bool:
    """Whether the parts and the residual of each profiled step make its time."""
    parts = ("operators_ns", "outside_ns", "host_ns", "engine_ns", "communication_ns", "residual_ns")
    return all(
        sum(getattr(step, part) for part in parts) == step.total_ns for step in steps if step.is_profiled
    )


needs_accelerate = pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None, reason="Hugging Face's Trainer needs accelerate"
)


def train(directory: Path, *callbacks: Any) -> list[torch.Tensor]:
    """Six steps of two passes each; the weights at their end."""
    trained = model()
    rows = [{"input_ids": [number % 64] * 8, "labels": [number % 64] * 8} for number in range(24)]
    arguments = TrainingArguments(
        str(directory),
        max_steps=6,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        include_num_input_tokens_seen=True,
    )
    Trainer(trained, arguments, train_dataset=rows, callbacks=list(callbacks)).train()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in trained.modules())
    return [weight.detach() for weight in trained.parameters()]


@needs_accelerate
def test_the_trainers_steps_have_rows_for_every_layer_and_the_same_weights(
    kept: Kept, tmp_path: Path
) -> None:
    callback = ProfilerCallback(options(tmp_path, 2, 3))
    profiled, plain = train(tmp_path, callback), train(tmp_path)
    assert all(torch.equal(*pair) for pair in zip(profiled, plain, strict=True))
    steps = kept.of(StepRecord)
    assert [(step.iteration, step.is_profiled, step.tokens) for step in steps] == [
        (2, 1, 32),
        (3, 0, 32),
        (4, 1, 32),
        (5, 0, 32),
    ]
    assert closed(steps)
    assert kept.layers("train") == every_layer()
    (rank,) = kept.of(RankRecord)
    assert (kept.name(rank.host), kept.name(rank.model)) == ("huggingface", "Qwen3ForCausalLM")
    (window,) = kept.of(WindowRecord)
    assert (window.steps, window.clean_steps, window.reason) == (2, 2, 0)
    assert callback.profiler is None


def test_generate_has_its_prefill_and_its_decode_apart(kept: Kept, tmp_path: Path) -> None:
    asked = model().eval()
    prompt = torch.arange(2 * 8).reshape(2, 8)
    told = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    plain = asked.generate(prompt, **told)
    before = type(asked)
    with forward_steps(asked, options(tmp_path, 1, 2)):
        profiled = asked.generate(prompt, **told)
    assert torch.equal(plain, profiled)
    assert type(asked) is before
    steps = sorted(kept.of(StepRecord), key=lambda step: step.start_ns)
    # each phase is counted for itself: the prefill; decode profiled, clean, profiled, clean, with shapes
    assert [(kept.name(step.phase), step.is_profiled, step.samples, step.tokens) for step in steps] == [
        ("prefill", 1, 2, 16),
        ("decode", 1, 2, 2),
        ("decode", 0, 2, 2),
        ("decode", 1, 2, 2),
        ("decode", 0, 2, 2),
    ]
    assert closed(steps)
    assert kept.layers("prefill") == kept.layers("decode") == every_layer()


@needs_accelerate
def test_a_rank_that_is_not_asked_for_is_left_alone(kept: Kept, tmp_path: Path) -> None:
    callback = ProfilerCallback(ProfileOptions(Steps(2, 3), tmp_path, ranks="1"))
    train(tmp_path, callback)
    assert kept.records == []


def test_events_that_do_not_matter_are_taken_and_other_names_are_not_there(tmp_path: Path) -> None:
    callback = ProfilerCallback(options(tmp_path, 1, 1))
    assert callback.on_something_of_tomorrow("args", "state", "control", model=1) is None
    with pytest.raises(AttributeError, match="no_event"):
        _ = callback.no_event


def test_a_pass_of_unknown_shape_is_just_a_pass(kept: Kept, tmp_path: Path) -> None:
    layer = torch.nn.Linear(4, 4)
    with forward_steps(layer, options(tmp_path, 1, 1)):
        layer(torch.ones(4))
        layer.eval()(input=torch.ones(3, 4))
    steps = kept.of(StepRecord)
    assert [(kept.name(step.phase), step.samples) for step in steps] == [("forward", None), ("forward", None)]
