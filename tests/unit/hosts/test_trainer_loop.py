"""What is read of a trainer's batches and of its model."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest
import torch

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.hosts.trainer_loop import TrainerLoop
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.training.work import NOT_COUNTED

CONFIG = {"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 4, "num_attention_heads": 2}
IDS = torch.zeros(3, 5, dtype=torch.long)


class Told:
    """A host's trainer on two ranks that do not share a batch."""

    host, rank, world_size, data_parallel, accumulated = "made up", 0, 2, 2, 2
    precision, steps, missing = "bf16-mixed", 7, ["a thing"]
    arguments = {"save_steps": 500, "hub_token": "secret"}

    def __init__(self, model: Any = None) -> None:
        self.model = model

    def finished(self) -> int:
        return 4

    def skipped(self) -> bool:
        return False


class GradientCheckpointingLayer(torch.nn.Linear):
    """Of transformers, by its name."""

    gradient_checkpointing = False


class Model(torch.nn.Module):
    """Like one of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(GradientCheckpointingLayer(8, 8) for _ in range(4))
        self.config = self

    def to_dict(self) -> dict[str, Any]:
        return CONFIG | {"vocab_size": 16, "intermediate_size": 16, "max_position_embeddings": 64}

    def get_output_embeddings(self) -> Any:
        return self.layers[0]


@pytest.mark.parametrize(
    ("batch", "samples", "tokens"),
    [
        ({"input_ids": IDS}, 6, 30),
        (UserDict(input_ids=IDS), 6, 30),
        ((torch.zeros(4, 3, 8, 8), torch.zeros(4)), 8, 0),
        ({"pixels": [torch.zeros(4, 3)]}, 8, 0),
        (torch.zeros(2, 9), 4, 0),
        ("text", 0, 0),
        ([], 0, 0),
        (None, 0, 0),
    ],
)
def test_what_a_batch_holds(batch: Any, samples: int, tokens: int) -> None:
    loop = TrainerLoop(Told(), batch, PerfConfig())
    loop.add([batch], True)
    assert loop.numbers(False) == (5, True, samples, tokens, 1, NOT_COUNTED, None)
    assert loop.position() == (4, samples)
    assert ("tokens" in loop.facts("CPU").missing[0].split()[:1]) == (not tokens)
    assert loop.facts("CPU").arguments == {"save_steps": 500, "hub_token": "***"}
    assert loop.facts("CPU").dtype == "bf16" and loop.facts("CPU").missing[-1] == "a thing"


def test_each_row_is_a_document_where_a_batch_shows_no_others() -> None:
    loop = TrainerLoop(Told(), {"input_ids": IDS}, PerfConfig())
    loop.counts_rows = True
    loop.add([{"input_ids": IDS}], True)
    loop.add([UserDict(input_ids=IDS[:, :2])], False)
    first = loop.numbers(False)
    assert first == (5, True, 12, 42, 2, (3 * 5 + 3 * 2, 3 * 25 + 3 * 4, None), (42, 2 * (3 * 25 + 3 * 4)))
    loop.add([{"input_ids": IDS}, {"input_ids": IDS[:, :2]}], True)
    assert loop.numbers(True) == (4, *first[1:]) and loop.numbers(True).packed is first.packed
    loop.add([{"pixels": IDS}], False)
    assert loop.numbers(False)[4:] == (3, NOT_COUNTED, None)
    loop.add([{"input_ids": IDS}], True)
    assert loop.numbers(False)[2:] == (6, 30, 1, (15, 75, None), (30, 150))


def test_layers_that_are_run_again() -> None:
    model = Model()
    loop = TrainerLoop(Told(model), {"input_ids": IDS}, PerfConfig())
    assert "recompute_method" not in loop.model_args()
    for layer in model.layers[::2]:
        layer.gradient_checkpointing = True
    assert loop.model_args()["recompute_num_layers"] == 2
    assert loop.model_args()["recompute_method"] == "block"


def test_a_model_without_a_head_over_the_vocabulary_is_not_counted() -> None:
    model = Model()
    model.get_output_embeddings = lambda: None
    with pytest.raises(PerfError, match="model: Model is no language model of transformers"):
        TrainerLoop(Told(model), {"input_ids": IDS}, PerfConfig()).model_args()
