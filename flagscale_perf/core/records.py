"""What the instruments record. Frozen, raw integers, units in the names; `None` means "not known", never 0.

A run file is a sequence of these, one JSON object a line, `kind` first; its first line is always a `RunHeader`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

SCHEMA_VERSION = 1


class Outcome(IntEnum):
    """What became of an iteration."""

    TRAINED = 0
    UPDATE_SKIPPED = 1  # the step ran, the optimizer did not: overflow, NaN, spiky loss
    DATA_SKIPPED = 2  # the host passed over the data without a step: --iterations-to-skip, --skip-iters-range


class StepRecord(NamedTuple):
    """One finished iteration (or, for DATA_SKIPPED, a run of passed-over ones) as this rank saw it.

    A NamedTuple because it is made once a step on the training thread.

    Attributes:
        iteration: the host's number of the (last) iteration, counted from 1.
        iterations: how many iterations this record stands for; more than 1 only for DATA_SKIPPED.
        outcome: an `Outcome`.
        warmup: 1 for the first iteration after a start or resume, else 0; left out of rates.
        start_ns: monotonic mark of the iteration's start.
        iteration_ns: start to next start, less eval_ns and checkpoint_ns.
        train_step_ns: host time inside the train step.
        device_ns: device time of the train step between two events; None without a device.
        eval_ns: evaluation between this start and the next.
        checkpoint_ns: checkpoint saving between this start and the next, as far as it blocks the loop.
        log_ns: from the iteration's start to the moment the host logs it; None where it does not log.
        samples: samples trained over all data-parallel ranks; 0 unless TRAINED.
        tokens: tokens trained, real ones for packed batches where the host counts them; 0 unless TRAINED.
        skipped_samples: samples consumed without training.
        microbatches: micro-batches of one data-parallel rank.
        model_flops: model FLOPs of the trained samples, all GPUs together, causal-half convention; None if the model's shape is not known.
        hardware_flops: the same plus recomputation; None like model_flops.
        memory_bytes: device memory allocated at the end; None between readings and without a device.
        memory_peak_bytes: peak of device memory allocated; None like memory_bytes.
    """

    iteration: int
    iterations: int
    outcome: int
    warmup: int
    start_ns: int
    iteration_ns: int
    train_step_ns: int
    device_ns: int | None
    eval_ns: int
    checkpoint_ns: int
    log_ns: int | None
    samples: int
    tokens: int
    skipped_samples: int
    microbatches: int
    model_flops: int | None
    hardware_flops: int | None
    memory_bytes: int | None
    memory_peak_bytes: int | None


class EventRecord(NamedTuple):
    """Something that happened once: a failure inside the monitor, a resume, a note.

    Attributes:
        name: one of "failure", "drop", "resume", "note", "clock", "suspect".
        at_ns: monotonic mark.
        iteration: the last finished iteration then; 0 before the first.
        text: one line for a human.
    """

    name: str
    at_ns: int
    iteration: int
    text: str


@dataclass(frozen=True)
class RunHeader:
    """First record of a run file: what ran, on what, by which conventions.

    Attributes:
        schema_version: `SCHEMA_VERSION` of the writer.
        session_id: local start time `YYYYmmdd_HHMMSS`, with `_2`, `_3` ... where that second is taken.
        start_wall_ns: Unix time of the start.
        start_mono_ns: monotonic mark of the same instant.
        facts: flat, JSON-ready; keys are fixed by `RunFacts`.
        config: the `PerfConfig` in force, as a dict.
    """

    schema_version: int
    session_id: str
    start_wall_ns: int
    start_mono_ns: int
    facts: dict[str, Any]
    config: dict[str, Any]


@dataclass(frozen=True)
class RunFacts:
    """What the host knows about the run when training starts; unknown values are None.

    Attributes:
        package_version: of flagscale_perf.
        host: e.g. "FlagScale 0.8.0".
        script: the training script's file name.
        hostname, pid, world_size, restart_count: of rank 0's process.
        tensor_parallel, pipeline_parallel, data_parallel, context_parallel, expert_parallel: sizes.
        device: e.g. "NVIDIA H200", or "CPU (rehearsal)".
        rehearsal: True when torch.cuda calls land on the CPU.
        dtype: "bf16", "fp16" or "fp32".
        peak_flop_per_s: dense peak of one device for dtype, the mean over all ranks where their devices differ; None if not
            known, and then there is no MFU and no HFU.
        peak_source: where the peak is from, or why there is none and how to set it.
        flops_convention: "causal_half".
        model_family: e.g. "llama".
        model: the shape the FLOPs are computed from.
        seq_length, micro_batch_size, global_batch_size, train_iters: of the host.
        resume_iteration: the iteration training continues after; 0 for a fresh start.
        tensorboard_dir: the host's, absolute; None if it writes none.
        missing: hooks or values that are not available, one phrase each.
    """

    package_version: str
    host: str
    script: str
    hostname: str
    pid: int
    world_size: int
    restart_count: int
    tensor_parallel: int | None
    pipeline_parallel: int | None
    data_parallel: int | None
    context_parallel: int | None
    expert_parallel: int | None
    device: str
    rehearsal: bool
    dtype: str | None
    peak_flop_per_s: float | None
    peak_source: str
    flops_convention: str
    model_family: str | None
    model: dict[str, Any] | None
    seq_length: int | None
    micro_batch_size: int | None
    global_batch_size: int | None
    train_iters: int | None
    resume_iteration: int
    tensorboard_dir: str | None
    missing: list[str]


@dataclass(frozen=True)
class IntervalRecord:
    """The steps since the last one, summed: one line of the text log. Rates are made of the sums when rendering.

    Warm-up iterations are left out of every sum unless the interval has nothing else (`warmup_only`).

    Attributes:
        iteration: last iteration in it.
        first_iteration: first iteration in it.
        end_wall_ns: Unix time of its end.
        steps: train steps summed (TRAINED and UPDATE_SKIPPED).
        skipped_iterations: UPDATE_SKIPPED and DATA_SKIPPED iterations in it.
        warmup_only: the only step in it was a warm-up.
        iteration_ns, train_step_ns, eval_ns, checkpoint_ns: sums of the steps' fields.
        device_ns: sum; None unless every step summed has it.
        samples, tokens, skipped_samples: sums.
        model_flops, hardware_flops: sums; None unless every step summed has it.
        mfu, hfu: what these sums make of the run's peak, a share of 1 that is suspect above it; None where the peak is not known.
        iteration_p50_ns, iteration_p95_ns, iteration_max_ns: over the steps summed.
        memory_bytes, memory_peak_bytes: last known in the interval.
        dropped: records lost so far because the ring was full.
    """

    iteration: int
    first_iteration: int
    end_wall_ns: int
    steps: int
    skipped_iterations: int
    warmup_only: bool
    iteration_ns: int
    train_step_ns: int
    device_ns: int | None
    eval_ns: int
    checkpoint_ns: int
    samples: int
    tokens: int
    skipped_samples: int
    model_flops: int | None
    hardware_flops: int | None
    mfu: float | None
    hfu: float | None
    iteration_p50_ns: int | None
    iteration_p95_ns: int | None
    iteration_max_ns: int | None
    memory_bytes: int | None
    memory_peak_bytes: int | None
    dropped: int


@dataclass(frozen=True)
class RunEnd:
    """Last record of a run file; absent while the run lives or when the writer died with it.

    Attributes:
        reason: "completed", "exit CODE", "exception NAME", "interrupted" or "killed".
        end_wall_ns: Unix time.
        last_iteration: last finished iteration; 0 if none.
        dropped: records lost because the ring was full.
    """

    reason: str
    end_wall_ns: int
    last_iteration: int
    dropped: int


Record = RunHeader | StepRecord | IntervalRecord | EventRecord | RunEnd
