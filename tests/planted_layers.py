"""A real small Qwen3 trained under the profiler, one of whose modules is slow on purpose.

python -m tests.planted_layers DIRECTORY RANK    profiles each of `PLANTS` into a directory of its name, and
says in rank0.json how long the plant slept in each profiled step, by its own clock.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import torch

from flagscale_perf.profile.profiler import Profiler
from tests.profiled_events import options_of, train_step

LAYERS, SLOW, STEPS, SLEEP_S = 8, 5, 24, 0.15
PLANTS = ("nothing", "thrice", "sleep", "head")
Function = Callable[..., Any]


def _thrice(function: Function) -> Function:
    """Forward and backward, too."""
    return lambda *args, **more: sum(function(*args, **more) for _ in range(3)) / 3


def _sleeping(function: Function, slept_ns: list[int]) -> Function:
    @wraps(function)
    def forward(*args: Any, **more: Any) -> Any:
        begin_ns = time.monotonic_ns()
        time.sleep(SLEEP_S)
        slept_ns.append(time.monotonic_ns() - begin_ns)
        return function(*args, **more)

    return forward


def _model() -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=64,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=64,
    )
    return Qwen3ForCausalLM(config)


def planted(directory: Path, plant: str) -> list[int]:
    """How long it slept in each profiled step."""
    model, slept_ns = _model(), list[int]()
    slow = {"thrice": model.model.layers[SLOW], "sleep": model.model.layers[SLOW].mlp, "head": model.lm_head}
    if plant in slow:
        module = slow[plant]
        module.forward = _thrice(module.forward) if plant == "thrice" else _sleeping(module.forward, slept_ns)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    tokens = torch.arange(64).reshape(1, 64) % 64
    options = options_of(directory, f"4-{3 + STEPS}", clean=0, shapes=False, memory=False)
    with Profiler(model, options) as profiler:
        for iteration in range(1, 4 + STEPS):
            with profiler.step(iteration):
                train_step(model, optimizer, tokens)
    return slept_ns[-STEPS:]


def main() -> None:
    directory, rank = Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    said = {plant: planted(directory / plant, plant) for plant in PLANTS}
    (directory / f"rank{rank}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main()
