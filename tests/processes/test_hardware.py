"""Counters read by a real writer process through the real nvidia-ml-py, from a driver that works, hangs or
crashes.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import psutil
import pytest

from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.training.records import HardwareRecord, IntervalRecord, StepRecord
from tests import fake_nvml
from tests.processes.trainer import DEADLINE_S, Trainer, ended_summary, records_in, trainer, wait_for


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_nvml.build(tmp_path_factory.mktemp("driver"))


def with_driver(library: Path, mode: str = "") -> dict[str, Any]:
    """What starts a trainer beside that driver."""
    return {
        "device_uuid": fake_nvml.DEVICE_UUID,
        "env": fake_nvml.environment(library, mode),
        "perf_log_interval": 1,
    }


def kept(directory: Path, kind: type) -> list[Any]:
    return [record for record in records_in(directory) if isinstance(record, kind)]


def remarks(directory: Path) -> list[str]:
    return [event.text for event in kept(directory, EventRecord) if event.name == "hardware"]


def loads_nvml(pid: int) -> bool:
    return any("libnvidia-ml" in mapped.path for mapped in psutil.Process(pid).memory_maps())


def close(running: Trainer) -> None:
    running.send("close", DEADLINE_S, "completed")
    assert running.answer() != "None"
    running.answer()


def test_readings_reach_the_interval_they_were_made_in(library: Path, tmp_path: Path) -> None:
    with trainer(tmp_path, **with_driver(library)) as running:
        writer = running.writer()
        wait_for("two readings", lambda: len(kept(tmp_path, HardwareRecord)) >= 2)
        running.tell("span")
        wait_for("the interval", lambda: kept(tmp_path, IntervalRecord))
        assert (loads_nvml(running.process.pid), loads_nvml(writer.pid)) == (False, True)
        close(running)
    (interval,) = kept(tmp_path, IntervalRecord)
    assert (interval.power_mw, interval.sm_clock_mhz, interval.temperature_c, interval.throttle) == (
        300_000,
        1980,
        61,
        "",
    )
    # Of two readings; a busy machine lets time go by between a reading's mark and its counter, and no less.
    readings = kept(tmp_path, HardwareRecord)
    counted = [(reading.tensor_ppm, reading.processes) for reading in readings]
    assert counted[:2] == [(None, None), (500_000, 1)]
    apart = {
        (last.energy_mj - first.energy_mj, last.at_ns - first.at_ns)
        for first, last in combinations(readings, 2)
    }
    assert (interval.energy_mj, interval.energy_ns) in apart
    for reading in readings:
        counted_ms = reading.energy_mj / 300  # 300 W since the machine's start
        assert reading.at_ns / 1e6 - 1 <= counted_ms <= monotonic_ns() / 1e6
    hardware = ended_summary(tmp_path)["hardware"]
    assert (hardware["min_sm_clock_mhz"], hardware["nvlinks_active"], remarks(tmp_path)) == (1980, 17, [])


@pytest.mark.parametrize("mode", ["hang", "hang later"])
def test_a_driver_that_hangs_harms_nobody(library: Path, tmp_path: Path, mode: str) -> None:
    with trainer(tmp_path, **with_driver(library, mode)) as running:
        running.writer()
        wait_for("the remark", lambda: remarks(tmp_path))
        running.tell("put", 3)
        close(running)
    assert remarks(tmp_path) == ["no hardware counters: the driver has not answered for 5 s"]
    assert [step.iteration for step in kept(tmp_path, StepRecord)] == [1, 2, 3]
    assert [interval.power_mw for interval in kept(tmp_path, IntervalRecord)] == [None] * 3
    assert set(ended_summary(tmp_path)["hardware"].values()) == {None}


def test_a_killed_training_has_its_summary_though_the_driver_hangs(library: Path, tmp_path: Path) -> None:
    with trainer(tmp_path, **with_driver(library, "hang")) as running:
        writer = running.writer()
        running.tell("put", 3)
        running.kill()
        assert ended_summary(tmp_path)["session_info"]["end_reason"] == "killed"
        wait_for("the writer's end", lambda: not writer.is_running())


def test_a_driver_that_crashes_costs_one_writer_and_the_counters(library: Path, tmp_path: Path) -> None:
    with trainer(tmp_path, **with_driver(library, "crash")) as running:
        running.tell("put", 3)
        wait_for("the remark", lambda: list(tmp_path.glob("perf_records_*")) and remarks(tmp_path))
        running.tell("put", 2)
        close(running)
    summary = ended_summary(tmp_path)
    assert [step.iteration for step in kept(tmp_path, StepRecord)] == [1, 2, 3, 4, 5]
    assert remarks(tmp_path) == [
        "no hardware counters any more: the writer process before this one has died, perhaps by the driver"
    ]
    assert (summary["failure_count"], "ended with code -6" in summary["failures"][0]["text"]) == (1, True)


def test_a_driver_that_does_not_fit_is_said_once(library: Path, tmp_path: Path) -> None:
    with trainer(tmp_path, **with_driver(library, "mismatch")) as running:
        running.writer()
        wait_for("the remark", lambda: remarks(tmp_path))
        close(running)
    assert remarks(tmp_path) == ["no hardware counters: NVML: RM has detected an NVML/RM version mismatch."]
    (log,) = tmp_path.glob("perf_metrics_*.log")
    assert log.read_text().count("no hardware counters") == 1
