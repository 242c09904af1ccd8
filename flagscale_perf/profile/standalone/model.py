"""A Hugging Face model with random weights, built from its configuration. Nothing is downloaded."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from flagscale_perf.spine.errors import PerfError

SMALL_QWEN3: dict[str, Any] = {
    "vocab_size": 4096,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "tie_word_embeddings": False,
}
DIVIDED = ("num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size")  # by --tp
TRAIN, GENERATE = "train", "generate"


@dataclass(frozen=True)
class Run:
    """What is profiled, by transformers or by vLLM.

    Attributes:
        model: directory of a configuration, and of weights that vLLM takes; None for the built-in one.
        steps, warmup: profiled steps (of each phase), and those before the first one.
        tokens: of a sequence; with `GENERATE`, those of the prompt.
        batch: sequences.
        longest: sequence that the model is made for.
        mode: `TRAIN` or `GENERATE`.
        directory: where the run file goes.
        tensor, pipeline: ranks that share each layer, and stages that share the layers.
    """

    model: Path | None
    steps: int
    warmup: int
    tokens: int
    batch: int
    longest: int
    mode: str
    directory: Path
    tensor: int = 1
    pipeline: int = 1

    @property
    def ranks(self) -> int:
        """How many processes there are."""
        return self.tensor * self.pipeline


def made_model(config: Path | None, longest: int, dtype: Any = None) -> Any:
    """The model. Raises PerfError for what is no configuration.

    Args:
        config: a directory with a config.json, or such a file; None for the small Qwen3 that is built in.
        longest: sequence that the built-in one is made for.
        dtype: of its parameters; None for what the configuration says.
    """
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise PerfError(f"transformers cannot be imported ({error}): pip install transformers") from None
    try:
        if config is None:
            made = transformers.Qwen3Config(**SMALL_QWEN3, max_position_embeddings=longest)
        else:
            made = transformers.AutoConfig.from_pretrained(str(config), local_files_only=True)
        typed = {} if dtype is None else {"dtype": dtype}
        return transformers.AutoModelForCausalLM.from_config(made, **typed)
    except (OSError, ValueError, KeyError) as error:
        raise PerfError(f"--model {config}: no model can be made of it ({_first_line(error)})") from None


def cache_name(module: Any) -> str:
    """How the module calls its keys and values: transformers has given them another name in 5.24."""
    return "cache" if "cache" in signature(module.forward).parameters else "past_key_values"


def divided(model: Any, tensor: int, pipeline: int) -> Any:
    """This rank's part of the model, divided by transformers' own tensor and pipeline parallelism. Raises
    PerfError for a model that cannot be divided so.
    """
    for name in DIVIDED if tensor > 1 else ():
        value = getattr(model.config, name, None)
        if value is not None and value % tensor:
            raise PerfError(
                f"--tp {tensor}: the model's {name}, {value}, is not a multiple of it; give a divisor of it"
            )
    layers = getattr(model.config, "num_hidden_layers", pipeline)
    if layers < pipeline:
        raise PerfError(f"--pp {pipeline}: the model has {layers} layers; give at most that many")
    try:
        distributed: Any = importlib.import_module("transformers.distributed")
        return type(model).from_pretrained(
            None,
            config=model.config,
            state_dict=model.state_dict(),
            distributed_config=distributed.DistributedConfig(tp_size=tensor, pp_size=pipeline),
        )
    except (ImportError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise PerfError(
            f"--tp {tensor} --pp {pipeline}: transformers cannot divide a {model.config.model_type!r} so"
            f" ({_first_line(error)}); profile it in vLLM or FlagScale"
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
