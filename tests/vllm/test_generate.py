"""A real vLLM with the plug-in: its tokens are the same, and each rank's steps are in one run file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.profile.records import RankRecord, RowRecord, Sort, StepRecord, WindowRecord
from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.store.run_file import RunFile
from tests.vllm.conftest import Generate, Generated
from tests.vllm.generate import CONFIG, LAYERS, PROMPT_TOKENS, PROMPTS

STEPS = "1-2"
PROJECTIONS = ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")
ATTENTION = "vllm::unified_attention_with_output"


@dataclass
class Profiled:
    """What one run file has of vLLM's processes, by their numbers; texts in place of names' numbers."""

    ranks: dict[int, RankRecord] = field(default_factory=dict)
    steps: dict[int, list[tuple[str, StepRecord]]] = field(default_factory=lambda: defaultdict(list))
    windows: dict[int, list[WindowRecord]] = field(default_factory=lambda: defaultdict(list))
    rows: dict[int, list[tuple[str, str, str, RowRecord]]] = field(default_factory=lambda: defaultdict(list))
    names: dict[tuple[int, int], str] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> Profiled:
        (path,) = directory.glob("perf_records_*.jsonl")  # one file, however many ranks
        return cls.of(path)

    @classmethod
    def of(cls, path: Path) -> Profiled:
        found = cls()
        for record in RunFile(path):
            found._add(record)
        return found

    def _add(self, record: Any) -> None:
        match record:
            case NameRecord():
                self.names[record.process, record.number] = record.text
            case RankRecord():
                self.ranks[record.process] = record
            case StepRecord():
                self.steps[record.process].append((self._name(record, record.phase), record))
            case WindowRecord():
                self.windows[record.process].append(record)
            case RowRecord():
                texts = (
                    self._name(record, number) for number in (record.step_phase, record.module, record.op)
                )
                self.rows[record.process].append((*texts, record))

    def _name(self, record: Any, number: int) -> str:
        return self.names.get((record.process, number), "")

    def text(self, process: int, number: int) -> str:
        return self.names.get((process, number), "")

    def runs(self, process: int, phase: str, op: str) -> dict[str, int]:
        """Of an operator, by module."""
        return {
            module: row.runs
            for step_phase, module, name, row in self.rows[process]
            if (step_phase, name) == (phase, op) and row.runs
        }

    def check_books(self, process: int) -> None:
        """Rows and residual are the steps; the residual is small."""
        profiled = [step for _, step in self.steps[process] if step.is_profiled]
        total_ns = sum(step.total_ns for step in profiled)
        residual_ns = sum(step.residual_ns or 0 for step in profiled)
        assert sum(row.self_ns for *_, row in self.rows[process]) + residual_ns == total_ns
        assert abs(residual_ns) < total_ns / 20


@pytest.fixture(scope="module")
def plain(generate: Generate) -> Generated:
    """Without the plug-in being switched on."""
    return generate(1, "eager", {})


def variables(directory: Path) -> dict[str, str]:
    return {"FLAGSCALE_PERF_PROFILE_STEPS": STEPS, "FLAGSCALE_PERF_PROFILE_DIR": str(directory)}


def phases(profiled: Profiled, process: int) -> Iterator[str]:
    return (phase for phase, step in profiled.steps[process] if step.is_profiled)


def test_eager_layers_have_their_operators_in_prefill_and_decode(
    generate: Generate, plain: Generated, tmp_path: Path
) -> None:
    generated = generate(1, "eager", variables(tmp_path))
    assert generated.tokens == plain.tokens
    found = Profiled.read(tmp_path)
    ((process, rank),) = found.ranks.items()
    assert (rank.rank, rank.world_size, rank.tensor_size) == (0, 1, 1)
    assert [found.text(process, name) for name in (rank.host, rank.model, rank.mode)] == [
        "vllm",
        "Qwen3ForCausalLM",
        "eager",
    ]
    assert sorted(set(phases(found, process))) == ["decode", "prefill"]
    prefills = [step for phase, step in found.steps[process] if phase == "prefill"]
    assert {(step.samples, step.tokens) for step in prefills} == {(PROMPTS, PROMPTS * PROMPT_TOKENS)}
    layers = {f"model.layers.{layer}.{part}": 2 for layer in range(LAYERS) for part in PROJECTIONS}
    for phase in ("prefill", "decode"):
        assert found.runs(process, phase, "_C::onednn_mm") == layers | {"logits_processor": 2}
        assert found.runs(process, phase, ATTENTION) == {
            f"model.layers.{layer}.self_attn.attn": 2 for layer in range(LAYERS)
        }
    found.check_books(process)
    (flops,) = {
        row.flops
        for phase, module, op, row in found.rows[process]
        if (phase, module, op) == ("prefill", "model.layers.0.mlp.down_proj", "_C::onednn_mm")
    }
    assert flops == 2 * (2 * PROMPT_TOKENS * CONFIG["intermediate_size"] * CONFIG["hidden_size"])  # two runs
    assert "flagscale_perf profile" not in generated.stderr


def test_two_tensor_parallel_ranks_are_in_one_run_file(generate: Generate, tmp_path: Path) -> None:
    plain = generate(2, "eager", {})
    assert generate(2, "eager", variables(tmp_path)).tokens == plain.tokens
    found = Profiled.read(tmp_path)
    assert sorted((rank.rank, rank.tensor, rank.tensor_size) for rank in found.ranks.values()) == [
        (0, 0, 2),
        (1, 1, 2),
    ]
    for process in found.ranks:
        reduced = {f"model.layers.{n}.{part}": 2 for n in range(LAYERS) for part in PROJECTIONS[1::2]}
        for phase in ("prefill", "decode"):
            assert found.runs(process, phase, "_C::shm_allreduce") == reduced | {"model.embed_tokens": 2}
        sorts = {row.sort for _, _, op, row in found.rows[process] if op == "_C::shm_allreduce"}
        assert sorts == {Sort.COMMUNICATION}
        found.check_books(process)
        for window in found.windows[process]:
            assert window.reason == 0


def test_compiled_layers_are_told_by_their_attention(
    generate: Generate, plain: Generated, tmp_path: Path
) -> None:
    generated = generate(1, "compiled", variables(tmp_path))
    assert [len(made) for made in generated.tokens] == [len(made) for made in plain.tokens]
    found = Profiled.read(tmp_path)
    ((process, rank),) = found.ranks.items()
    assert found.text(process, rank.mode) == "compiled"
    products = {f"model.layers.{layer}": 2 * len(PROJECTIONS) for layer in range(LAYERS)}
    for phase in ("prefill", "decode"):
        assert found.runs(process, phase, "_C::onednn_mm") == products | {"logits_processor": 2}
        assert found.runs(process, phase, ATTENTION) == {
            f"model.layers.{layer}.self_attn.attn": 2 for layer in range(LAYERS)
        }
        assert set(found.runs(process, phase, "compiled region")) == set(products)
    found.check_books(process)
