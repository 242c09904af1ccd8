"""The real nvidia-ml-py, in a process of its own, against drivers that tell the truth, nothing, or
nonsense.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import fake_nvml
from tests.fakes import SECOND

READ = """
import json, sys, time
from dataclasses import asdict
from flagscale_perf.device.counters import NoCountersError
from flagscale_perf.device.nvml import NvmlReader
for name in sys.argv[2:]:
    import pynvml
    delattr(pynvml, name)
try:
    reader = NvmlReader.open(sys.argv[1])
except NoCountersError as error:
    print(json.dumps(str(error)))
else:
    reader.read()
    time.sleep(0.25)  # nearer samples may hold the same counters
    print(json.dumps(asdict(reader.read())))
"""

WHOLE = {
    "power_mw": 300_000,
    "sm_clock_mhz": 1980,
    "throttle": "",
    "temperature_c": 61,
    "ecc_uncorrected": 0,
    "xid": 0,
    "pcie_generation": 5,
    "pcie_width": 16,
    "pcie_replays": 3,
    "nvlinks_active": 17,
    "tensor_ppm": 500_000,
    "processes": 1,
}
UNCOUNTED = {"tensor_ppm": None, "processes": None}


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    return fake_nvml.build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def read(run_python, library):
    """Reads the device twice in a process of its own; the second reading without its time and energy, or the
    refusal.
    """

    def run(
        mode: str = "",
        device_uuid: str = fake_nvml.DEVICE_UUID,
        directory: Path = library,
        lacks: tuple[str, ...] = (),
    ):
        done = run_python("-c", READ, device_uuid, *lacks, env=fake_nvml.environment(directory, mode))
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        if isinstance(answer, dict):
            assert answer.pop("at_ns") > 0
            energy = answer.pop("energy_mj")
            assert energy is None or energy > 0
            counted_ns = answer.pop("tensor_ns")
            assert counted_ns is None if answer["tensor_ppm"] is None else counted_ns >= SECOND // 5
        return answer

    return run


def test_everything_a_device_tells(read) -> None:
    assert read() == WHOLE


def test_reasons_have_names_and_unknown_ones_are_other(read) -> None:
    assert read("throttled") == WHOLE | {"throttle": "other, power, temperature"}


def test_a_critical_error_is_reported_once(run_python, library) -> None:
    code = READ.replace(
        READ[READ.index("reader.read()") :],
        "print([reader.read().xid for _ in range(2)])",
    )
    assert run_python("-c", code, "1", env=fake_nvml.environment(library, "xid")).stdout == "[79, 0]\n"


def test_a_slice_tells_what_it_can(read) -> None:
    assert read(device_uuid=fake_nvml.SLICE_UUID) == WHOLE | UNCOUNTED | {"power_mw": None}


def test_tensor_cores_that_are_busy_half_of_the_time(read) -> None:
    assert read("cannot be divided") == WHOLE
    assert read("shared") == WHOLE | {"processes": 2}
    assert read("hidden") == WHOLE | {"processes": None}


@pytest.mark.parametrize("mode", ["ampere", "divided", "no samples", "no tensor", "still", "in use"])
def test_tensor_cores_that_are_not_counted_cost_only_that(read, mode: str) -> None:
    assert read(mode) == WHOLE | UNCOUNTED


@pytest.mark.parametrize("mode", ["gone", "no longer"])
def test_counters_that_go_missing_later(run_python, library, mode: str) -> None:
    code = READ.replace(
        READ[READ.index("reader.read()") :],
        "print([(reader.read().tensor_ppm, time.sleep(0.25))[0] for _ in range(4)])",
    )
    done = run_python("-c", code, "1", env=fake_nvml.environment(library, mode))
    assert done.stdout == "[None, 500000, None, None]\n"


def test_nothing_a_lying_driver_says_is_believed(read) -> None:
    assert read("lying") == dict.fromkeys(WHOLE) | {"xid": 0}


def test_values_in_another_unit_are_not_believed(read) -> None:
    assert read("watts") == WHOLE | {"power_mw": None}


def test_a_lost_device_is_no_reason_to_stop(read) -> None:
    assert read("lost") == dict.fromkeys(WHOLE) | {"xid": 0}


def test_a_query_that_is_refused_costs_only_its_value(read) -> None:
    assert read("no events") == WHOLE | {"xid": None}


def test_an_old_library_without_some_functions(read, tmp_path) -> None:
    unknown = ["ecc_uncorrected", "xid", "nvlinks_active", *UNCOUNTED]
    assert read(directory=fake_nvml.build(tmp_path, old=True)) == WHOLE | dict.fromkeys(unknown) | {
        "throttle": "idle"
    }


def test_an_old_package_without_some_names(read) -> None:
    lacks = ("nvmlDeviceGetCurrentClocksEventReasons", "NVML_CLOCK_SM", "nvmlDeviceGetPcieReplayCounter")
    assert read(lacks=lacks) == WHOLE | dict.fromkeys(("throttle", "sm_clock_mhz", "pcie_replays"))


def test_why_there_are_no_counters(read, tmp_path) -> None:
    assert read("mismatch") == "RM has detected an NVML/RM version mismatch."
    assert read(device_uuid="3") == "Not Found"


def test_without_the_package_it_says_what_to_install(run_python) -> None:
    code = "import sys; sys.modules['pynvml'] = None\n" + READ
    assert (
        run_python("-c", code, "1").stdout
        == '"reading them needs nvidia-ml-py, which is not installed; install it: '
        f"{sys.executable} -m pip install 'nvidia-ml-py>=12.535'\"\n"
    )
