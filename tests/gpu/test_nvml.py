"""The real driver: plausible values of the very device torch computes on, and energy that agrees with
power.
"""

from __future__ import annotations

import time
from dataclasses import asdict

import pynvml
import pytest
import torch

from flagscale_perf.device.nvml import NvmlReader
from flagscale_perf.device.probe import CudaProbe

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

MUST_BE_KNOWN = ("power_mw", "sm_clock_mhz", "throttle", "temperature_c")


@pytest.fixture
def reader() -> NvmlReader:
    uuid = CudaProbe(torch.cuda).uuid
    assert uuid is not None
    return NvmlReader.open(uuid)


def used_bytes(reader: NvmlReader) -> int:
    return int(pynvml.nvmlDeviceGetMemoryInfo(reader._device).used)


def busy_for(seconds: float) -> None:
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(10):
            matrix @ matrix
        torch.cuda.synchronize()


def test_it_is_the_device_torch_computes_on(reader: NvmlReader) -> None:
    before = used_bytes(reader)
    block = torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
    after = used_bytes(reader)
    assert pynvml.nvmlDeviceGetName(reader._device) == CudaProbe(torch.cuda).name
    assert after - before == pytest.approx(block.numel(), rel=0.1)
    del block
    torch.cuda.empty_cache()


def test_a_working_device_tells_what_matters(reader: NvmlReader) -> None:
    busy_for(2.0)
    reading = reader.read()
    print(asdict(reading))
    assert [name for name in MUST_BE_KNOWN if getattr(reading, name) is None] == []
    assert (reading.xid or 0, reading.ecc_uncorrected or 0) == (0, 0)


def test_the_energy_counter_agrees_with_the_power(reader: NvmlReader) -> None:
    if reader.read().energy_mj is None:
        pytest.skip("this device has no energy counter")
    busy_for(1.0)
    first = reader.read()
    powers = []
    for _ in range(20):
        busy_for(0.1)
        powers.append(reader.read().power_mw)
    last = reader.read()
    mean_mw = (last.energy_mj - first.energy_mj) * 10**9 / (last.at_ns - first.at_ns)
    assert mean_mw == pytest.approx(sum(powers) / len(powers), rel=0.25)
