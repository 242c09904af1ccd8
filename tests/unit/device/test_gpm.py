"""The tensor cores' counter, with the real nvidia-ml-py: which devices have one; samples that are too near.
What it reads: test_nvml.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import fake_nvml

DOCTOR = "from flagscale_perf.device.gpm import tensor_counters; print(tensor_counters())"
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
    ("mode", "line"),
    [
        ("", "on 1 of 1 devices"),
        ("ampere", "on 0 of 1 devices: the others need Hopper or later, not divided into MIG slices"),
        ("divided", "on 0 of 1 devices: the others need Hopper or later, not divided into MIG slices"),
    ],
)
def test_doctor_says_which_devices_count(run_python, library: Path, mode: str, line: str) -> None:
    done = run_python("-c", DOCTOR, env=fake_nvml.environment(library, mode))
    assert done.stdout == f"tensor core counters (GPM, for MFU by counter) {line}\n"


def test_doctor_says_why_it_is_not_known(run_python, library: Path) -> None:
    done = run_python("-c", DOCTOR, env=fake_nvml.environment(library, "mismatch"))
    assert done.stdout == (
        "tensor core counters: not known, NVML: RM has detected an NVML/RM version mismatch.\n"
    )
    done = run_python("-c", f"import sys; sys.modules['pynvml'] = None; {DOCTOR}")
    assert done.stdout == "tensor core counters: not known, nvidia-ml-py is not installed\n"


def test_samples_that_may_hold_the_same_counters_are_not_compared(run_python, library: Path) -> None:
    done = run_python("-c", NEAR, env=fake_nvml.environment(library))
    assert done.stdout == "[500000, 500000] True\nTrue\n"
