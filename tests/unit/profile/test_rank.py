"""What a rank is called."""

from __future__ import annotations

import pytest

from flagscale_perf.profile.rank import Rank


def test_what_the_host_does_not_say_is_looked_up() -> None:
    assert Rank(host="huggingface").completed("Qwen3ForCausalLM", is_compiled=True) == Rank(
        rank=0, world_size=1, host="huggingface", model="Qwen3ForCausalLM", device="cpu", mode="compiled"
    )


def test_what_the_host_says_stays() -> None:
    said = Rank(rank=3, world_size=8, tensor=1, tensor_size=2, model="GPTModel", device="gpu", mode="graphs")
    assert said.completed("Other", is_compiled=False) == said


def test_before_torch_distributed_runs_the_launcher_says_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    rank = Rank().completed("", is_compiled=False)
    assert (Rank().number, rank.rank, rank.world_size) == (3, 3, 8)
    monkeypatch.setenv("WORLD_SIZE", "eight")
    assert Rank().completed("", is_compiled=False).world_size == 4
