"""A real device's tensor core counter against products of known FLOPs: the truth for MFU by counter."""

from __future__ import annotations

import time

import pytest
import torch

from flagscale_perf.device.nvml import NvmlReader
from flagscale_perf.device.peaks import find_peak, flop_per_clock
from flagscale_perf.device.probe import CudaProbe
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.training.hardware import HardwareWindow

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SIDE, ROUND, READINGS = 8192, 20, 8
POINTS = 0.03  # as the finding has it


def products_for(seconds: float, idle_s: float) -> int:
    """Multiplies for a while and sleeps after each round; how many products there were."""
    factor = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    out, done, end = torch.empty_like(factor), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(ROUND):
            torch.matmul(factor, factor, out=out)
        torch.cuda.synchronize()
        done += ROUND
        time.sleep(idle_s)
    return done


@pytest.mark.parametrize("idle_s", [0.0, 0.05, 0.2])
def test_products_of_known_flops_are_what_the_counter_says(idle_s: float) -> None:
    probe = CudaProbe(torch.cuda)
    per_clock, peak = flop_per_clock(probe.name, "bf16"), find_peak(probe.name, "bf16").flop_per_s
    if probe.uuid is None or per_clock is None or peak is None:
        pytest.skip(f"what {probe.name} multiplies in a clock is not known")
    reader, window = NvmlReader.open(probe.uuid), HardwareWindow()
    products_for(2.0, idle_s)  # at the clock it keeps
    begin = reader.read()
    done = 0
    for _ in range(READINGS):
        done += products_for(1.0, idle_s)
        end = reader.read()
        window.add(end)
        print(end)
    if not reader.counts_tensor_cores:
        pytest.skip("this device does not count its tensor cores")
    trained_ns = begin.at_ns - NS_PER_S // 10, end.at_ns  # readings begin and end some ms apart
    window.advance(0, end.at_ns, trained_ns)
    read = window.close()
    assert read.tensor_cycles is not None and read.tensor_ns is not None
    by_counter = read.tensor_cycles * per_clock * NS_PER_S / read.tensor_ns / peak
    by_products = done * 2 * SIDE**3 * NS_PER_S / (end.at_ns - begin.at_ns) / peak
    print(f"{probe.name}: MFU by counter {by_counter:.3f}, by products {by_products:.3f}")
    assert by_counter == pytest.approx(by_products, abs=POINTS)
    assert end.processes in (1, None)
