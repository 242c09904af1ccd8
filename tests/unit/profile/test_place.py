"""Where a process stands in its job."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from flagscale_perf.profile.place import Place


def test_without_torch_distributed_the_launchers_environment_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert Place.current("vllm") == Place(3, 8, host="vllm")
    assert Place.current().title == "rank 3"


def test_a_process_on_its_own_is_rank_0_of_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert Place.current(device="CPU") == Place(0, 1, host="torch", device="CPU")


def test_torch_distributed_is_believed_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RANK", "7")
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert Place.current() == Place(0, 1)
    finally:
        torch.distributed.destroy_process_group()
