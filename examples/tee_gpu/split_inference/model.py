"""The model of the GPU side: from a directory of safetensors, or made from a configuration by a seed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)
from transformers.utils import logging

from flagscale_perf.spine.errors import PerfError
from split_inference.traffic import ModelSizes

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
DTYPE_VARIABLE = "LLAMA_DTYPE"

_LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
}  # fmt: skip
_ROPE = {"rope_type": "default", "rope_theta": 1000000.0}


def _sizes(*sizes: int) -> dict[str, int]:
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
             "intermediate_size", "vocab_size")  # fmt: skip
    return dict(zip(names, sizes, strict=True)) | {"max_position_embeddings": 32768}


# Layers, hidden, heads, key-value heads, head dimension, MLP, vocabulary.
CONFIGS: dict[str, tuple[type[PretrainedConfig], dict[str, Any]]] = {
    "tiny": (LlamaConfig, _sizes(16, 256, 8, 2, 32, 768, 4096) | {"rope_parameters": _LLAMA3_ROPE}),
    "tiny-mha": (LlamaConfig, _sizes(4, 128, 4, 4, 32, 384, 1024) | {"rope_parameters": _ROPE}),
    "small": (LlamaConfig, _sizes(2, 512, 8, 2, 64, 2048, 8192) | {"rope_parameters": _LLAMA3_ROPE}),
    "llama-3.2-1b": (
        LlamaConfig,
        _sizes(16, 2048, 32, 8, 64, 8192, 128256)
        | {"rope_parameters": _LLAMA3_ROPE, "rms_norm_eps": 1e-5, "max_position_embeddings": 131072,
           "tie_word_embeddings": True},
    ),
    "qwen2-tiny": (Qwen2Config, _sizes(4, 256, 8, 2, 32, 768, 4096) | {"rope_parameters": _ROPE}),
    "mistral-tiny": (
        MistralConfig,
        _sizes(4, 256, 8, 2, 32, 768, 4096) | {"rope_parameters": _ROPE, "sliding_window": None},
    ),
    "qwen3-tiny": (Qwen3Config, _sizes(4, 256, 8, 2, 32, 768, 4096) | {"rope_parameters": _ROPE}),
    "qwen3-0.6b": (
        Qwen3Config,
        _sizes(28, 1024, 16, 8, 128, 3072, 151936)
        | {"rope_parameters": _ROPE, "max_position_embeddings": 40960, "tie_word_embeddings": True},
    ),
}  # fmt: skip
FAMILIES = ("llama", "qwen2", "qwen3", "mistral")  # qwen2: Qwen2.5, too


@dataclass(frozen=True)
class ModelChoice:
    """Which model.

    Attributes:
        config: a name of `CONFIGS`; weights are then random, by `seed`.
        directory: of safetensors and a config.json, instead.
        layers: fewer or more of them than the configuration has; None for its own number.
        attention: how transformers computes it: "eager", as the protected side does, or "sdpa".
    """

    config: str = "tiny"
    directory: Path | None = None
    layers: int | None = None
    seed: int = 0
    attention: str = "eager"

    @property
    def source(self) -> str:
        """Where the weights are from; models of one source and of equal sizes are equal."""
        return self.directory.name if self.directory else f"{self.config}, random by seed {self.seed}"


def chosen_dtype(name: str | None, device: torch.device) -> torch.dtype:
    """`name`, else `LLAMA_DTYPE`, else bfloat16 on a GPU and float32 on a CPU."""
    name = name or os.environ.get(DTYPE_VARIABLE) or ("bfloat16" if device.type == "cuda" else "float32")
    if name not in DTYPES:
        raise PerfError(f"{DTYPE_VARIABLE} or --dtype is {name!r}; write one of: {', '.join(DTYPES)}")
    return DTYPES[name]


def chosen_device() -> torch.device:
    """The first GPU where there is one, else the CPU."""
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def configuration(choice: ModelChoice) -> PretrainedConfig:
    """The model's sizes, without weights."""
    if choice.directory is not None:
        config = AutoConfig.from_pretrained(_checked(choice.directory), local_files_only=True)
    elif choice.config in CONFIGS:
        made, sizes = CONFIGS[choice.config]
        config = made(**sizes)
    else:
        raise PerfError(f"--config {choice.config!r} is not known; write one of: {', '.join(CONFIGS)}")
    if config.model_type not in FAMILIES:
        raise PerfError(f"a {config.model_type} model cannot be split here, only: {', '.join(FAMILIES)}")
    has_window = config.model_type == "mistral" and config.sliding_window is not None
    if has_window or "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        raise PerfError("the model has layers with sliding-window attention, which the split does not have")
    if choice.layers is not None:
        config.num_hidden_layers = choice.layers
        if getattr(config, "layer_types", None):
            config.layer_types = ["full_attention"] * choice.layers
    return config


def make_model(choice: ModelChoice, dtype: torch.dtype, device: torch.device | None = None) -> nn.Module:
    """transformers' own model, ready for inference. Nothing is downloaded."""
    logging.disable_progress_bar()
    config = configuration(choice)
    if choice.directory is not None:
        model = AutoModelForCausalLM.from_pretrained(
            choice.directory, config=config, dtype=dtype, local_files_only=True, use_safetensors=True,
            attn_implementation=choice.attention,
        )  # fmt: skip
    else:
        torch.manual_seed(choice.seed)
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=choice.attention)
        for name, parameter in model.named_parameters():
            if name.endswith(".bias"):  # transformers begins with 0
                nn.init.normal_(parameter, std=config.initializer_range)
    return model.eval().requires_grad_(False).to(device or torch.device("cpu"))


def model_sizes(config: PretrainedConfig) -> ModelSizes:
    """What the traffic depends on."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return ModelSizes(
        layers=config.num_hidden_layers, hidden=config.hidden_size, heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads, head_dim=head_dim, ffn=config.intermediate_size,
        vocab=config.vocab_size,
    )  # fmt: skip


def differences(choice: ModelChoice, described: Mapping[str, Any], of_weights: bool) -> list[str]:
    """In what a model differs from the one that a server describes (`GpuSide.describe`); random weights by
    their seed.
    """
    config = configuration(choice)
    ours = asdict(model_sizes(config)) | {"family": config.model_type}
    if of_weights and choice.directory is None:
        ours["seed"] = choice.seed
    return [
        f"{name} {value} here, {described.get(name)} there"
        for name, value in ours.items()
        if described.get(name) != value
    ]


def _checked(directory: Path) -> Path:
    if not (directory / "config.json").is_file() or not list(directory.glob("*.safetensors")):
        raise PerfError(f"--model {directory} must be a directory with config.json and *.safetensors")
    return directory
