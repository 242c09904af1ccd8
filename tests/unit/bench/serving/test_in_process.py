"""transformers' generate, timed token by token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.cli import main
from tests.serving import only_bench

TINY = {
    "model_type": "qwen3",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 64,
}


@pytest.fixture(autouse=True)
def inductor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """transformers sets the variable where it is not set."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))


def test_tokens_are_timed_one_by_one(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    sizes = ["--batch-sizes", "1,2", "--seq-lens", "8", "--output-lens", "5", "--repeats", "1"]
    options = ["--model", str(tmp_path), "--engine", "torch", "-o", str(tmp_path / "out"), *sizes]
    assert main(["bench", "latency", *options]) == 0
    part = only_bench(tmp_path / "out").parts["latency"]
    assert (part.state, part.count) == ("complete", "12 points")
    for batch in (1, 2):
        case = {"arm": "single", "batch": batch}
        ttft, tpot, whole, speed = (
            part.of(figure, **case)[0].samples[0] for figure in ("ttft", "tpot", "latency", "throughput")
        )
        assert ttft + 4 * tpot == pytest.approx(whole) and speed == pytest.approx(5 * batch / whole)
        assert ttft > 0 and tpot > 0
    assert (part.settings["engine"], part.settings["weights"]) == ("torch", "random")


def test_a_model_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text('{"model_type": "none", "vocab_size": 8}')
    options = ["--model", str(tmp_path), "--engine", "torch", "--quick", "-o", str(tmp_path / "out")]
    assert main(["bench", "latency", *options]) == 2
    assert "no model can be made of it" in capsys.readouterr().err
