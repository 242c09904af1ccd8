"""A Hugging Face model with random weights, made of a configuration, and its steps profiled here.

Nothing is downloaded: a configuration is a directory with a config.json, or the small Qwen3 that is built in.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flagscale_perf.profile.options import ProfileOptions, Steps
from flagscale_perf.spine.errors import PerfError

SMALL_QWEN3: dict[str, Any] = {
    "vocab_size": 4096, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "tie_word_embeddings": False,
}  # fmt: skip
SEED = 1234
TRAIN, GENERATE = "train", "generate"
ROOF_S = 0.5  # for each roof


@dataclass(frozen=True)
class OwnRun:
    """What is run.

    Attributes:
        model: directory of a configuration; None for the built-in one.
        steps, warmup: profiled steps, and those before the first one.
        tokens: of a sequence; with `GENERATE`, those that are generated.
        batch: sequences.
        longest: sequence that the model is made for.
        mode: `TRAIN` or `GENERATE`.
        directory: of the run file.
    """

    model: Path | None
    steps: int
    warmup: int
    tokens: int
    batch: int
    longest: int
    mode: str
    directory: Path


def profile_own(run: OwnRun) -> None:
    """Runs and profiles it. Raises PerfError for a model that cannot be made."""
    import torch

    from flagscale_perf.device.roofs import roofs
    from flagscale_perf.profile.profiler import Profiler
    from flagscale_perf.profile.rank import Rank

    if run.tokens > run.longest:
        raise PerfError(
            f"--num-tokens {run.tokens} is more than --max-seq-len {run.longest}; raise the latter"
        )
    torch.manual_seed(SEED)
    model = _made(run)
    first = run.warmup + 1
    options = ProfileOptions(Steps(first, first + run.steps - 1), run.directory.absolute())
    step = _training(model, run) if run.mode == TRAIN else _forward(model, run)
    length = 2 * run.steps + 1  # each profiled one has a clean one behind it, the last one shapes and memory
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    measured = roofs(torch, (dtype,), ROOF_S)  # before the first step: it measures alone
    with Profiler(model, options, rank=Rank(host="huggingface"), roofs=measured) as profiler:
        for iteration in range(1, run.warmup + length + 1):
            step(profiler, iteration)


def _made(run: OwnRun) -> Any:
    """The model, with random weights."""
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise PerfError(f"transformers cannot be imported ({error}): pip install transformers") from None
    try:
        if run.model is None:
            config = transformers.Qwen3Config(**SMALL_QWEN3, max_position_embeddings=run.longest)
        else:
            config = transformers.AutoConfig.from_pretrained(str(run.model), local_files_only=True)
        return transformers.AutoModelForCausalLM.from_config(config)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().split("\n")[0]
        raise PerfError(f"--model {run.model}: no model can be made of it ({first})") from None


def _training(model: Any, run: OwnRun) -> Callable[[Any, int], None]:
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(0, model.config.vocab_size, (run.batch, run.tokens))
    model.train()

    def step(profiler: Any, iteration: int) -> None:
        """Forward, backward, optimizer."""
        with profiler.step(iteration, "train", samples=run.batch, tokens=ids.numel()):
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return step


def _forward(model: Any, run: OwnRun) -> Callable[[Any, int], None]:
    import torch

    model.eval()
    ids = torch.randint(0, model.config.vocab_size, (run.batch, run.tokens))

    def step(profiler: Any, iteration: int) -> None:
        """A prefill, and the decoding of one token: two kinds of steps, each with windows of its own."""
        with torch.no_grad():
            with profiler.step(iteration, "prefill", samples=run.batch, tokens=ids.numel()):
                out = model(input_ids=ids, use_cache=True)
            following = out.logits[:, -1:].argmax(-1)
            with profiler.step(iteration, "decode", samples=run.batch, tokens=run.batch):
                model(input_ids=following, past_key_values=out.past_key_values, use_cache=True)

    return step
