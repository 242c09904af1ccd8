"""The model that is served has its limits from its directory, and a wrong directory is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.bench.serving.model import SMALL_QWEN3, read_model, write_served
from flagscale_perf.spine.errors import PerfError


def write(directory: Path, **config: object) -> str:
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    return str(directory)


def test_the_small_one_needs_no_directory() -> None:
    model = read_model(None)
    assert (model.name, model.longest, model.vocabulary, model.weights) == (
        "a small Qwen3 (built in)",
        8192 + 256,
        16_384,
        "random",
    )
    assert (
        model.cache_bytes(10) == 10 * 2 * 4 * 2 * 64 * 2
    )  # K and V of 4 layers, 2 heads of 64, 2 bytes each


def test_a_directory_says_its_limits_also_where_a_part_is_about_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a", vocab_size=10, n_positions=64, n_layer=2, n_head=2, n_embd=8)
    assert (read_model(path).longest, read_model(path, 32).longest) == (64, 32)
    assert read_model(path).cache_bytes(1) == 2 * 2 * 8 * 2
    nested = write(tmp_path / "b", text_config={"vocab_size": 7, "max_position_embeddings": 16})
    assert (read_model(nested).longest, read_model(nested).vocabulary) == (16, 7)
    assert read_model(nested).cache_bytes(1) is None
    (tmp_path / "b/model.safetensors").touch()
    assert read_model(nested).weights == "its own"


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(PerfError, match="there is no .*/nowhere/config.json; give a local directory"):
        read_model(str(tmp_path / "nowhere"))
    path = write(tmp_path, vocab_size=0, n_positions=64)
    with pytest.raises(PerfError, match="--max-model-len 65: .* is made for 64 tokens; give 64 or less"):
        read_model(path, 65)
    with pytest.raises(PerfError, match="no vocab_size; add it"):
        write_served(read_model(path), tmp_path / "served")
    for broken in ("{", "[]"):
        (tmp_path / "config.json").write_text(broken)
        with pytest.raises(PerfError, match="put the model's own there"):
            read_model(str(tmp_path))


def test_the_tokenizer_has_a_word_for_each_token(tmp_path: Path) -> None:
    directory = write_served(read_model(None), tmp_path / "served")
    assert json.loads((directory / "config.json").read_text()) == SMALL_QWEN3
    words = json.loads((directory / "tokenizer.json").read_text())["model"]["vocab"]
    assert len(words) == 16_384 and words["t17"] == 17
