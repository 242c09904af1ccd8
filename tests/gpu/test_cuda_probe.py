"""The probe on a real device: right times, right memory, and not one synchronise."""

import subprocess
import sys

import pytest
import torch

from flagscale_perf.device.peaks import find_peak
from flagscale_perf.device.probe import CudaProbe, current_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_device_time_is_read_without_waiting_and_agrees_with_a_synchronised_clock():
    probe = CudaProbe(torch.cuda)
    matrix = torch.randn(4096, 4096, device="cuda")
    truth = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    matrix @ matrix
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        truth[0].record()
        probe.start()
        for _ in range(50):
            matrix @ matrix
        pair = probe.stop()
        truth[1].record()
        first = probe.elapsed_ns(pair)
        probe.memory()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    assert first is None or first > 0
    elapsed_ns = first or probe.elapsed_ns(pair)
    assert elapsed_ns == pytest.approx(truth[0].elapsed_time(truth[1]) * 1e6, rel=0.05)


def test_memory_is_the_allocators():
    probe = CudaProbe(torch.cuda)
    block = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    reading = probe.memory()
    assert (reading.allocated_bytes, reading.peak_bytes) == (
        torch.cuda.memory_allocated(),
        torch.cuda.max_memory_allocated(),
    )
    assert (reading.reserved_bytes, reading.retries) == (
        torch.cuda.memory_reserved(),
        torch.cuda.memory_stats()["num_alloc_retries"],
    )
    assert block.numel() <= reading.allocated_bytes <= reading.reserved_bytes <= probe.memory_bytes


def test_the_devices_name_is_one_the_table_can_be_asked_about():
    peak = find_peak(CudaProbe(torch.cuda).name, "bf16")
    assert peak.source


def test_the_device_is_asked_once_the_host_uses_it():
    torch.cuda.init()
    assert current_device(rehearsing=False).name == torch.cuda.get_device_name()


def test_a_host_that_trains_on_the_cpu_gets_no_cuda_context():
    script = """
import torch
from flagscale_perf.device.probe import current_device
print(current_device(rehearsing=False).name, torch.cuda.is_initialized())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["CPU", "False"]
