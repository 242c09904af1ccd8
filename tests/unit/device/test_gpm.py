"""The tensor cores' counter, with the real nvidia-ml-py: which devices have one; samples that are too near.
What it reads: test_nvml.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import fake_nvml

DOCTOR = "from flagscale_perf.device.nvml import tensor_counters; print(tensor_counters('1'))"
NO = "no, that needs Hopper or later, and no MIG slices"
NEAR = """
import time, pynvml
from flagscale_perf.device.gpm import LEAST_NS, TensorCounter
pynvml.nvmlInit()
counter = TensorCounter(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0))
begin, readings = time.monotonic_ns(), []
while len(readings) < 2:
    reading = counter.read()
    if reading is not None:
        readings.append(reading)
print([ppm for ppm, _ in readings], all(dur_ns >= LEAST_NS for _, dur_ns in readings))
print(sum(dur_ns for _, dur_ns in readings) <= time.monotonic_ns() - begin)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_nvml.build(tmp_path_factory.mktemp("driver"))


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("", "yes"),
        ("ampere", NO),
        ("divided", NO),
        ("mismatch", "not known, RM has detected an NVML/RM version mismatch."),
    ],
)
def test_doctor_says_whether_the_device_counts(run_python, library: Path, mode: str, said: str) -> None:
    done = run_python("-c", DOCTOR, env=fake_nvml.environment(library, mode))
    assert done.stdout == f"MFU by counter: {said}\n"


def test_samples_that_may_hold_the_same_counters_are_not_compared(run_python, library: Path) -> None:
    done = run_python("-c", NEAR, env=fake_nvml.environment(library))
    assert done.stdout == "[500000, 500000] True\nTrue\n"
