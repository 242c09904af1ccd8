"""The probe's memory and identity, from a torch.cuda that only answers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from flagscale_perf.device.probe import CudaProbe, Memory, NoDevice, current_device

STATS = {
    "allocated_bytes": {"all": {"current": 3, "peak": 5}},
    "reserved_bytes": {"all": {"current": 8, "peak": 9}},
    "num_alloc_retries": 2,
}


def probe_of(stats=STATS, **properties) -> CudaProbe:
    cuda = SimpleNamespace(
        get_device_name=lambda: "NVIDIA H200",
        current_device=lambda: 3,
        get_device_properties=lambda device: SimpleNamespace(total_memory=device * 100, **properties),
        memory_stats_as_nested_dict=lambda: stats,
    )
    return CudaProbe(cuda)


def test_the_device_is_the_processs_current_one() -> None:
    probe = probe_of(uuid="5f5b2e52-0000-0000-0000-000000000001")
    assert (probe.name, probe.uuid, probe.memory_bytes) == (
        "NVIDIA H200",
        "5f5b2e52-0000-0000-0000-000000000001",
        300,
    )
    assert probe_of().uuid is None


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        (STATS, Memory(3, 5, 8, 2)),
        ({"allocated_bytes": {"all": {"current": 3, "peak": 5}}}, Memory(3, 5, None, None)),
        ({}, None),
    ],
    ids=["torch", "an allocator that tells less", "one that tells nothing"],
)
def test_memory_is_what_the_allocator_counts(stats, expected) -> None:
    assert probe_of(stats).memory() == expected


def test_the_cpu_has_neither() -> None:
    probe = NoDevice()
    assert (probe.uuid, probe.memory_bytes, probe.memory()) == (None, None, None)


def test_cuda_that_the_host_has_not_set_up_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*_: object) -> None:
        raise AssertionError("asked a device that nobody uses")

    for name in ("is_available", "get_device_name", "get_device_properties", "current_device"):
        monkeypatch.setattr(f"torch.cuda.{name}", touched)
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: False)
    assert isinstance(current_device(rehearsing=False), NoDevice)
