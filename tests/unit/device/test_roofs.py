"""What a device reaches at best."""

from __future__ import annotations

import pytest
import torch

from flagscale_perf.device import roofs


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(roofs, "SIDES", {"cpu": 64})
    monkeypatch.setattr(roofs, "copy_bytes", lambda kind: 4096)


def test_each_roof_is_work_by_the_time_of_its_fastest_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofs, "_best", lambda torch, run, seconds: roofs.Best(seconds, 1))
    assert roofs.roofs(torch, ("float32",), 0.5) == {
        "matmul.float32": 2 * 64**3 * 2,  # FLOP of a product, in half a second
        "copy": 2 * 4096 * 2,  # bytes read and written
    }


def test_it_runs_for_so_long_and_keeps_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 0.3, 0.3, 0.4, 0.6, 1.1])  # runs of 0.3, 0.2 s, then the time is up
    monkeypatch.setattr(roofs.time, "perf_counter", lambda: next(clock))
    runs: list[int] = []
    best = roofs._best(torch, lambda: runs.append(1), 1.0)
    assert (round(best.seconds, 6), best.rounds, len(runs)) == (0.2, 2, 3)


def test_what_the_device_cannot_do_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("not implemented for 'Half'")

    monkeypatch.setattr("torch.matmul", refuse)
    assert list(roofs.roofs(torch, ("float16",), 0.01)) == ["copy"]
    monkeypatch.setattr("torch.ones", refuse)
    assert roofs.roofs(torch, ("float16",), 0.01) == {}


def test_a_copy_is_more_than_the_caches_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(roofs, "last_cache_bytes", lambda: 200 << 20)
    monkeypatch.setattr(roofs.os, "sysconf", lambda name: {"SC_PAGE_SIZE": 4096}.get(name, 1 << 22))  # 16 GiB
    assert roofs.copy_bytes("cpu") == 800 << 20
    monkeypatch.setattr(roofs, "last_cache_bytes", lambda: 0)
    assert roofs.copy_bytes("cpu") == 256 << 20
    monkeypatch.setattr(roofs.os, "sysconf", lambda name: {"SC_PAGE_SIZE": 4096}.get(name, 1 << 18))  # 1 GiB
    assert roofs.copy_bytes("cpu") == 128 << 20
    assert roofs.copy_bytes("cuda") == 1 << 30


def test_the_last_cache(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofs, "_CACHE", tmp_path)
    assert roofs.last_cache_bytes() == 0
    for index, size in enumerate(("48K", "2048K", "32M", "odd")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(f"{size}\n")
    assert roofs.last_cache_bytes() == 32 << 20
