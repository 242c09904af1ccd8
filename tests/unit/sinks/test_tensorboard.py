"""Curves, read back by TensorBoard itself."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import SessionLog

from flagscale_perf.sinks.tensorboard import TensorBoardSink
from tests.fakes import make_context, make_facts, make_header, make_interval

KNOWN = {
    "performance/tflops_per_gpu": 5.0,
    "performance/tflops_total": 40.0,
    "performance/samples_per_second": 80.0,
    "performance/tokens_per_second": 10240.0,
    "performance/mfu": 0.05,
    "performance/hfu": 0.0625,
    "performance/mfu_by_counter": 0.05,
    "memory/current_gb": 2.0,
    "memory/peak_gb": 3.0,
    "memory/reserved_gb": 4.0,
    "memory/fragmentation": 0.5,
    "memory/alloc_retries": 0.0,
    "hardware/power_w": 640.0,
    "hardware/temperature_c": 60.0,
    "hardware/sm_clock_mhz": 1980.0,
    "hardware/tokens_per_joule": 2.0,  # 10240 tokens/s on 8 devices of 640 W
    "performance/avg_step_time_ms": 100.0,
    "training/loss": 2.5,
    "training/grad_norm": 1.25,
    "training/learning_rate": 1e-4,
    "time/iteration_ms": 100.0,
    "time/train_step_ms": 90.0,
    "time/device_ms": 80.0,
    "time/eval_ms": 0.0,
    "time/checkpoint_ms": 0.0,
    "training/skipped_iterations": 0.0,
}


def written(directory: Path, header, *intervals) -> Path:
    sink = TensorBoardSink(make_context(header, directory, print))
    for interval in intervals:
        sink.write(interval)
    sink.flush()
    sink.close()
    (path,) = directory.rglob("events.out.tfevents.*")
    return path


def test_tensorboard_reads_the_points_and_none_for_what_is_not_known(tmp_path: Path) -> None:
    nothing = [
        "model_flops",
        "hardware_flops",
        "device_ns",
        "memory_bytes",
        "memory_peak_bytes",
        "memory_reserved_bytes",
        "memory_retries",
        "energy_mj",
        "energy_ns",
        "power_mw",
        "sm_clock_mhz",
        "temperature_c",
        "throttle",
    ]
    intervals = [make_interval(10), make_interval(20, **dict.fromkeys(nothing))]
    path = written(tmp_path, make_header(), *intervals)
    version, start, first, second = LegacyEventFileLoader(str(path)).Load()
    assert (version.file_version, first.step, second.step, first.wall_time) == (
        "brain.Event:2",
        10,
        20,
        1_706_524_215.0,
    )
    assert (start.session_log.status, start.step) == (SessionLog.START, 1)
    assert {value.tag: value.simple_value for value in first.summary.value} == pytest.approx(KNOWN)
    missing = {
        "performance/tflops_per_gpu",
        "performance/tflops_total",
        "performance/mfu",
        "performance/hfu",
        "performance/mfu_by_counter",
        "time/device_ms",
    }
    assert {value.tag for value in second.summary.value} == {
        tag for tag in KNOWN if tag not in missing and not tag.startswith(("memory/", "hardware/"))
    }


def test_a_resumed_run_replaces_what_was_trained_after_its_checkpoint(tmp_path: Path) -> None:
    tag = "performance/tokens_per_second"

    def points() -> list[tuple[int, float]]:
        read = EventAccumulator(str(tmp_path / "tensorboard"))
        read.Reload()
        return [(point.step, point.value) for point in read.Scalars(tag)]

    def train(hour: int, after: int | None, *intervals, resumed: bool = False) -> None:
        facts = make_facts() if after is None else make_facts(resume_iteration=after)
        header = make_header(facts=facts)
        header = replace(header, start_wall_ns=header.start_wall_ns + hour * 3600 * 10**9)
        sink = TensorBoardSink(replace(make_context(header, tmp_path, print), resumed=resumed))
        for interval in intervals:
            sink.write(interval)
        sink.flush()
        sink.close()

    train(0, None, *map(make_interval, (10, 20, 30, 40)))
    fast = {"iteration_ns": 500_000_000}
    train(1, 20, make_interval(30, **fast), make_interval(40, **fast))
    assert points() == [(10, 10240), (20, 10240), (30, 20480), (40, 20480)]
    train(1, 20, make_interval(50), resumed=True)  # the same session, by the next writer
    assert [step for step, _ in points()] == [10, 20, 30, 40, 50]
    train(2, 0, make_interval(10))  # there was no checkpoint
    assert points() == [(10, 10240)]


def test_it_is_a_run_of_its_own_next_to_the_hosts(tmp_path: Path) -> None:
    hosts = tmp_path / "tb"
    path = written(tmp_path, make_header(facts=make_facts(tensorboard_dir=str(hosts))))
    assert path.parent == hosts / "flagscale_perf"


def test_without_one_it_is_in_the_log_directory(tmp_path: Path) -> None:
    path = written(tmp_path, make_header())
    assert path.parent == tmp_path / "tensorboard"
    assert path.name.startswith("events.out.tfevents.1706524200.")


def test_a_file_of_the_same_name_is_left_alone(tmp_path: Path) -> None:
    first = written(tmp_path, make_header(), make_interval(10))
    content = first.read_bytes()
    sink = TensorBoardSink(make_context(make_header(), tmp_path, print))
    sink.flush()
    sink.close()
    assert first.read_bytes() == content
    assert sorted(path.suffix for path in first.parent.iterdir()) == [".0", ".1"]


def test_without_the_package_it_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    with pytest.raises(ImportError):
        TensorBoardSink.open(make_context(make_header(), tmp_path, print))


def test_a_machines_name_chooses_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system, _, *rest = os.uname()
    monkeypatch.setattr("os.uname", lambda: os.uname_result((system, "x/../../../../y", *rest)))
    path = written(tmp_path / "logs", make_header(), make_interval())
    assert path.parent == tmp_path / "logs" / "tensorboard"
    assert path.name.endswith(f".x_.._.._.._.._y.{os.getpid()}.0")
