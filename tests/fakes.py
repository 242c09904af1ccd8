"""Builders of records and facts, and stand-ins of the host, for tests."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flagscale_perf.sinks.base import SinkContext
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.records import SCHEMA_VERSION, EventRecord, Record, RunEnd, RunHeader
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.host import HostStretch
from flagscale_perf.training.marks import STARTS, STOPS, in_slots
from flagscale_perf.training.ranks.blocks import RankIdentity
from flagscale_perf.training.records import (
    HardwareRecord,
    IntervalRecord,
    MarksRecord,
    Outcome,
    PhaseRecord,
    StepRecord,
)
from flagscale_perf.training.summary.presentation import PRESENTATION
from flagscale_perf.training.utilisation import Scale
from flagscale_perf.training.window import IntervalWindow, end_mono_ns

MS = 1_000_000
SECOND = 1_000_000_000
SCALE = Scale(8, 1e14, 62_500)  # of `make_facts`


def free_port() -> int:
    """A port of this machine that nobody listened at a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def make_step(iteration: int = 1, **overrides: Any) -> StepRecord:
    """A trained step of 100 ms: 8 samples, 1024 tokens, 4 TFLOP, 2 GB in use; step n starts at n x 100 ms."""
    fields: dict[str, Any] = dict.fromkeys(StepRecord._fields) | {
        "iteration": iteration,
        "iterations": 1,
        "outcome": int(Outcome.TRAINED),
        "warmup": 0,
        "start_ns": iteration * 100 * MS,
        "iteration_ns": 100 * MS,
        "train_step_ns": 90 * MS,
        "device_ns": 80 * MS,
        "eval_ns": 0,
        "checkpoint_ns": 0,
        "log_ns": None,
        "samples": 8,
        "tokens": 1024,
        "skipped_samples": 0,
        "microbatches": 2,
        "model_flops": 4 * 10**12,
        "hardware_flops": 5 * 10**12,
        "memory_bytes": 2 * 10**9,
        "memory_peak_bytes": 3 * 10**9,
        "memory_reserved_bytes": 4 * 10**9,
        "memory_retries": 0,
        "self_ns": 20_000,
    }
    return StepRecord(**fields | overrides)


def make_skipped_data(iteration: int, iterations: int = 1, **overrides: Any) -> StepRecord:
    """Iterations passed over without a step, the last of them `iteration`: 8 samples each, 1 ms each."""
    fields: dict[str, Any] = {
        "iterations": iterations,
        "outcome": int(Outcome.DATA_SKIPPED),
        "iteration_ns": iterations * MS,
        "train_step_ns": 0,
        "device_ns": None,
        "samples": 0,
        "tokens": 0,
        "skipped_samples": 8 * iterations,
        "microbatches": 0,
        "model_flops": 0,
        "hardware_flops": 0,
        "memory_bytes": None,
        "memory_peak_bytes": None,
        "memory_reserved_bytes": None,
        "memory_retries": None,
        "self_ns": 0,
    }
    return make_step(iteration, **fields | overrides)


def make_phases(iteration: int = 1, **overrides: Any) -> PhaseRecord:
    """The phases of `make_step`'s step, on a stage of a pipeline: 80 ms of phases, 10 ms of other, 10 ms
    between the steps.
    """
    fields: dict[str, Any] = dict.fromkeys(PhaseRecord._fields) | {
        "iteration": iteration,
        "data_loading_ns": 2 * MS,
        "forward_ns": 18 * MS,
        "backward_ns": 36 * MS,
        "pipeline_recv_wait_ns": 15 * MS,
        "pipeline_send_ns": 1 * MS,
        "exposed_grad_comm_ns": 3 * MS,
        "optimizer_ns": 1 * MS,
        "optimizer_inner_step_ns": 4 * MS,
        "forward_backward_other_ns": 4 * MS,
        "other_ns": 6 * MS,
        "between_steps_ns": 10 * MS,
    }
    return PhaseRecord(**fields | overrides)


def make_marks(iteration: int = 1, **overrides: Any) -> MarksRecord:
    """What `make_step`'s step tells of `make_phases`' phases, one after the other: the ring has this, the run
    file those.
    """
    marks, at_ns = [], iteration * 100 * MS
    for phase, own_ns in enumerate(make_phases(iteration, **overrides)[1:-2]):
        if own_ns:
            marks += [at_ns + STARTS[phase], at_ns + own_ns + STOPS[phase]]
            at_ns += own_ns
    (record,) = in_slots(iteration, marks)
    return record


def make_interval(iteration: int = 10, **overrides: Any) -> IntervalRecord:
    """Ten of `make_step`s: 1 s at 640 W, 80 samples, 10240 tokens, 40 TFLOP, 50 with recomputation; MFU and
    HFU as `SCALE` has them.
    """
    fields: dict[str, Any] = {
        "iteration": iteration,
        "first_iteration": iteration - 9,
        "end_wall_ns": 1_706_524_215 * SECOND,
        "steps": 10,
        "skipped_iterations": 0,
        "warmup_only": False,
        "iteration_ns": 1000 * MS,
        "train_step_ns": 900 * MS,
        "device_ns": 800 * MS,
        "eval_ns": 0,
        "checkpoint_ns": 0,
        "samples": 80,
        "tokens": 10240,
        "skipped_samples": 0,
        "model_flops": 40 * 10**12,
        "hardware_flops": 50 * 10**12,
        "mfu": 0.05,
        "hfu": 0.0625,
        "iteration_p50_ns": 100 * MS,
        "iteration_p95_ns": 100 * MS,
        "iteration_max_ns": 100 * MS,
        "memory_bytes": 2 * 10**9,
        "memory_peak_bytes": 3 * 10**9,
        "memory_reserved_bytes": 4 * 10**9,
        "memory_retries": 0,
        "energy_mj": 640_000,
        "energy_ns": SECOND,
        "power_mw": 650_000,
        "sm_clock_mhz": 1980,
        "temperature_c": 60,
        "throttle": "",
        "tensor_cycles": 90_000_000,
        "tensor_ns": 900 * MS,
        "self_ns": 200_000,
        "phases_ns": None,
        "bubble_ns": None,
        "imbalance_ns": None,
        "dropped": 0,
        "loss": 2.5,
        "grad_norm": 1.25,
        "learning_rate": 1e-4,
    } | HostStretch()._asdict()
    return IntervalRecord(**fields | overrides)


def make_reading(at_ns: int, **overrides: Any) -> HardwareRecord:
    """An untroubled device that has drawn 640 W since the clock's zero."""
    fields: dict[str, Any] = {
        "power_mw": 650_000,
        "energy_mj": 10**6 + at_ns * 640 // MS,
        "sm_clock_mhz": 1980,
        "throttle": "",
        "temperature_c": 60,
        "ecc_uncorrected": 0,
        "xid": 0,
        "pcie_generation": 5,
        "pcie_width": 16,
        "pcie_replays": 0,
        "nvlinks_active": 18,
        "processes": 1,
    }
    return HardwareRecord(at_ns, **fields | overrides)


def make_identity(rank: int = 1, **overrides: Any) -> RankIdentity:
    """A rank on "node0" without a device, whose process has the number 1000 + rank; each in a lockstep of its
    own.
    """
    fields: dict[str, Any] = {
        "rank": rank,
        "hostname": "node0",
        "pid": 1000 + rank,
        "device": "CPU",
        "device_uuid": None,
        "stage": 0,
        "lockstep": rank,
    }
    return RankIdentity(**fields | overrides)


def make_event(name: str = "note", **overrides: Any) -> EventRecord:
    """A note 1 s after the start."""
    fields: dict[str, Any] = {"name": name, "at_ns": SECOND, "iteration": 0, "text": "something happened"}
    return EventRecord(**fields | overrides)


def make_facts(**overrides: Any) -> RunFacts:
    """A job of 8 devices with a peak of 100 TFLOP/s each, without a TensorBoard of its own, whose process
    began at -2 s.
    """
    fields: dict[str, Any] = {
        "package_version": "0.1.0",
        "host": "FlagScale 0.8.0",
        "script": "train_gpt.py",
        "hostname": "node0",
        "pid": 1234,
        "world_size": 8,
        "restart_count": 0,
        "tensor_parallel": 2,
        "pipeline_parallel": 1,
        "data_parallel": 4,
        "context_parallel": 1,
        "expert_parallel": 1,
        "pipeline_schedule": None,
        "device": "NVIDIA H200",
        "rehearsal": False,
        "dtype": "bf16",
        "peak_flop_per_s": 1e14,
        "peak_source": "a round number",
        "flops_convention": "causal_half",
        "model_family": "llama",
        "model": {"hidden_size": 64},
        "seq_length": 128,
        "micro_batch_size": 1,
        "global_batch_size": 8,
        "train_iters": 100,
        "resume_iteration": 0,
        "tensorboard_dir": None,
        "missing": [],
        "process_start_ns": -2 * SECOND,
        "device_uuid": None,
        "device_memory_bytes": 141 * 10**9,
        "flop_per_clock": 62_500,
    }
    return RunFacts(**fields | overrides)


def make_header(
    session_id: str = "20240129_103000", facts: RunFacts | None = None, **config: Any
) -> RunHeader:
    """The header of a session that began on 2024-01-29 10:30:00 UTC, when the monotonic clock stood at 0.

    Of the options it has those that anything behind the header reads.
    """
    return RunHeader(
        schema_version=SCHEMA_VERSION,
        session_id=session_id,
        start_wall_ns=1_706_524_200 * SECOND,
        start_mono_ns=0,
        facts=asdict(facts or make_facts()),
        config={
            "perf_log_interval": 10,
            "perf_breakdown": False,
            "perf_console_output": False,
            "perf_max_log_files": 10,
        }
        | config,
        instrument="training",
        host="node0",
        boot_id="5b0f2d5c-8a31-4d1b-9f0e-2f6f3a7c1e42",
        pid=1234,
    )


def make_context(
    header: RunHeader, directory: Path, emit: Callable[[str], None], **others: Any
) -> SinkContext:
    """What a sink of a training is given."""
    return SinkContext(header, directory, emit, PRESENTATION, **others)


def sample_intervals() -> list[IntervalRecord]:
    """The two intervals of the requirement's sample log: 8 devices at 125.34 and 128.12 TFLOP/s."""
    return [
        make_interval(
            10,
            end_wall_ns=1_706_524_215 * SECOND,
            iteration_ns=2_355_400_000,
            train_step_ns=2_300_000_000,
            device_ns=2_250_000_000,
            samples=1206,
            tokens=2_469_816,
            model_flops=2_361_806_688_000_000,
            hardware_flops=2_952_258_360_000_000,
            memory_bytes=42_500_000_000,
            memory_peak_bytes=45_000_000_000,
        ),
        make_interval(
            20,
            end_wall_ns=1_706_524_230 * SECOND,
            iteration_ns=2_302_000_000,
            train_step_ns=2_250_000_000,
            device_ns=2_200_000_000,
            samples=1197,
            tokens=2_451_538,
            model_flops=2_359_457_920_000_000,
            hardware_flops=2_949_322_400_000_000,
            memory_bytes=42_750_000_000,
            memory_peak_bytes=45_200_000_000,
            eval_ns=1500 * MS,
            checkpoint_ns=250 * MS,
            skipped_iterations=1,
        ),
    ]


def sample_run() -> list[Record]:
    """A run of 25 steps with everything in it: warm-up, skips, evaluation, a failure, a partial last
    interval, an end.

    The device is read every half second, hot and at its power limit at 2 s.
    """
    header = make_header(facts=make_facts(missing=["phases (host has no Timers)"]))
    window = IntervalWindow(10, Anchor(header.start_wall_ns, header.start_mono_ns), SCALE)
    records: list[Record] = [header]
    steps = [make_step(1, warmup=1, iteration_ns=400 * MS)]
    steps += [make_step(i, memory_peak_bytes=i * 10**8) for i in range(2, 20)]
    steps += [
        make_step(20, eval_ns=500 * MS, checkpoint_ns=250 * MS),
        make_skipped_data(23, 3),
        make_step(24),
        make_step(25),
    ]
    readings = [make_reading(n * SECOND // 2) for n in range(4)]
    readings.append(make_reading(2 * SECOND, temperature_c=80, sm_clock_mhz=1400, throttle="power"))
    for step in steps:
        while readings and readings[0].at_ns <= end_mono_ns(step):
            records.append(readings[0])
            window.add_hardware(readings.pop(0))
        interval = window.add(step)
        records += [step] if interval is None else [step, interval]
        if step.iteration == 12:
            records.append(
                make_event(
                    "failure",
                    at_ns=1300 * MS,
                    iteration=12,
                    text="summary: OSError: [Errno 28] No space left on device",
                )
            )
    last = window.close()
    assert last is not None
    return [*records, last, RunEnd("completed", header.start_wall_ns + 3 * SECOND, 25, 0)]
