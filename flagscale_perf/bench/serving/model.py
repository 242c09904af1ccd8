"""The measured model: its configuration, its limits, and a directory that vLLM can serve.

Prompts are random token ids. vLLM's bench makes text of them, so the directory has a tokenizer in which token
`n` is the word `tn`: a prompt has exactly the tokens that were drawn, which many tokenizers do not give.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flagscale_perf.profile.standalone import model as standalone
from flagscale_perf.spine.errors import PerfError

WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
# `vllm bench latency` draws tokens below 10,000.
SMALL_QWEN3: dict[str, Any] = standalone.SMALL_QWEN3 | {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 16_384,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "hidden_act": "silu",
    "attention_bias": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 1,
    "max_position_embeddings": 8192 + 256,
}
SMALL_NAME = "a small Qwen3 (built in)"
_LONGEST = ("max_position_embeddings", "n_positions", "max_sequence_length")
CACHE_BYTES = 2  # per element of a key or value


@dataclass(frozen=True)
class Model:
    """The model that is measured.

    Attributes:
        directory: of its configuration and weights; None for the one that is built in.
        config: its `config.json`.
        longest: tokens that a sequence may have, prompt and output; None where nothing says.
        has_weights: whether there are some beside the configuration; else they are random.
    """

    directory: Path | None
    config: Mapping[str, Any]
    longest: int | None
    has_weights: bool

    @property
    def name(self) -> str:
        """Its directory, or what stands for the built-in one."""
        return SMALL_NAME if self.directory is None else str(self.directory)

    @property
    def weights(self) -> str:
        """`its own`, or `random`."""
        return "its own" if self.has_weights else "random"

    @property
    def vocabulary(self) -> int:
        """Upper limit of token ids. Raises PerfError if the configuration has none."""
        size = self.text.get("vocab_size")
        if not isinstance(size, int) or size < 1:
            raise PerfError(f"--model {self.name}: its config.json has no vocab_size; add it")
        return size

    @property
    def text(self) -> Mapping[str, Any]:
        """The text part of the configuration, if it has several parts."""
        part = self.config.get("text_config")
        return part if isinstance(part, dict) else self.config

    def cache_bytes(self, tokens: int) -> int | None:
        """Size of the KV cache for so many tokens; None if the configuration does not tell."""
        text = self.text
        layers = text.get("num_hidden_layers") or text.get("n_layer")
        heads = text.get("num_attention_heads") or text.get("n_head")
        hidden = text.get("hidden_size") or text.get("n_embd")
        if not (layers and heads and hidden):
            return None
        width = text.get("head_dim") or hidden // heads
        kept = text.get("num_key_value_heads") or heads
        return int(tokens * 2 * layers * kept * width * CACHE_BYTES)


def read_model(path: str | Path | None, longest: int | None = None) -> Model:
    """The model of a local directory, or the built-in one. `longest`: the user's limit. Raises PerfError if
    there is no model in the directory, or for a limit above the model's own.
    """
    if path is None:
        model = Model(None, SMALL_QWEN3, None, has_weights=False)
    else:
        directory = Path(path)
        has_weights = any(next(directory.glob(one), None) for one in WEIGHTS)
        model = Model(directory.absolute(), _config(directory), None, has_weights)
    own = next((model.text[key] for key in _LONGEST if isinstance(model.text.get(key), int)), None)
    if longest is not None and own is not None and longest > own:
        raise PerfError(
            f"--max-model-len {longest}: {model.name} is made for {own} tokens; give {own} or less"
        )
    return replace(model, longest=longest or own)


def _config(directory: Path) -> dict[str, Any]:
    path = directory / "config.json"
    if not path.is_file():
        raise PerfError(
            f"--model {directory}: there is no {path}; give a local directory that has one (nothing is"
            " downloaded), or leave it out for a small Qwen3"
        )
    try:
        made = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PerfError(
            f"--model {directory}: {path} is no JSON ({error}); put the model's own there"
        ) from None
    if not isinstance(made, dict):
        raise PerfError(f"--model {directory}: {path} holds no object; put the model's own there")
    return made


def vllm_words(options: Mapping[str, object]) -> list[str]:
    """Options of a vLLM command: `--max-model-len 64` for `{"max-model-len": 64}`, a switch alone for True,
    and nothing for None and False.
    """
    given = {
        f"--{name}": value for name, value in options.items() if value is not None and value is not False
    }
    return [
        word for name, value in given.items() for word in ((name,) if value is True else (name, str(value)))
    ]


def model_options(model: Model, served: Path) -> dict[str, object]:
    """Options by which vLLM reads this model and its tokenizer; `served`: what `write_served` has written."""
    return {
        "model": model.directory if model.has_weights else served,
        "tokenizer": served,
        "load-format": None if model.has_weights else "dummy",
    }


def write_served(model: Model, directory: Path) -> Path:
    """Writes a directory with the configuration and the tokenizer of numbered words."""
    directory.mkdir(parents=True, exist_ok=True)
    vocabulary = {f"t{number}": number for number in range(model.vocabulary)}
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "t0"},
    }
    about: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": model.longest}
    for name, content in (
        ("config.json", model.config),
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", about),
    ):
        (directory / name).write_text(json.dumps(content), encoding="utf-8")
    return directory
