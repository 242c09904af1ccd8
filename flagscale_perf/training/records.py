"""What the instruments record. Frozen, raw integers, units in the names; `None` means "not known", never 0.

A new field of `StepRecord` is one line here and one where it is measured; codec and ring follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from flagscale_perf.spine.records import EventRecord, RunEnd, RunHeader, record, room_of
from flagscale_perf.spine.slots import Wide
from flagscale_perf.training.ranks.records import NodeRecord, RanksRecord, StragglerRecord


class Outcome(IntEnum):
    """What became of an iteration."""

    TRAINED = 0
    UPDATE_SKIPPED = 1  # the step ran, the optimizer did not: overflow, NaN, spiky loss
    DATA_SKIPPED = 2  # the host passed over the data without a step: --iterations-to-skip, --skip-iters-range


@record("step", slot=1, start="start_ns", duration="iteration_ns")
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
        model_flops: model FLOPs of the trained samples, all GPUs together, causal-half convention; None if
            the model's shape is not known.
        hardware_flops: the same plus recomputation; None like model_flops.
        memory_bytes: device memory allocated at the end; None between readings and without a device.
        memory_peak_bytes: peak of device memory allocated; None like memory_bytes.
        memory_reserved_bytes: what the allocator holds of the device, allocated or not; None like
            memory_bytes.
        memory_retries: how often since the process's start the allocator found no room and had to free its
            cache; None like memory_bytes.
        self_ns: what the monitor took of the training thread since the last record; None in files of earlier
            versions.
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
    model_flops: Wide | None
    hardware_flops: Wide | None
    memory_bytes: int | None
    memory_peak_bytes: int | None
    memory_reserved_bytes: int | None
    memory_retries: int | None
    self_ns: int | None


@record(slot=3)
class MarksRecord(NamedTuple):
    """Marks of one train step as the training thread took them (see `training.marks`); in the ring only,
    before their `StepRecord`.

    Attributes:
        iteration: as in the step's record.
        total: marks of the step in all its records; 0 if they could not be taken.
        marks: those in this record.
    """

    iteration: int
    total: int
    marks: tuple[int, ...]


MARKS_PER_SLOT = room_of(MarksRecord)


@record("phases")
class PhaseRecord(NamedTuple):
    """Where one iteration's time went on this rank; in a run file just before its `StepRecord`.

    Times without what the phases inside take, so that they add up to `iteration_ns`. By the device's clock
    where there is a device, else by the host's. None for a phase the host did not name in this iteration; all
    None where none was measured.

    Attributes:
        iteration: as in the step's record.
        data_loading_ns: making a batch.
        forward_ns, backward_ns: computing.
        pipeline_recv_wait_ns: waiting for another stage's tensor, its transfer included.
        pipeline_send_ns: handing one to another stage.
        exposed_grad_comm_ns: waiting for reductions of gradients that computing does not hide.
        exposed_param_comm_ns: the same for gathering parameters.
        exposed_stat_comm_ns: the ranks agreeing on whether a result is valid, on the update, the gradient
            norm and the loss.
        zero_grad_ns: zeroing the gradient buffers.
        optimizer_ns: the optimizer outside its parts, which follow.
        optimizer_copy_grad_ns, optimizer_unscale_check_ns, optimizer_clip_ns, optimizer_inner_step_ns,
            optimizer_copy_param_ns, optimizer_count_zeros_ns: its parts.
        forward_backward_other_ns: the schedule of forward and backward outside all of these.
        other_ns: the train step outside every phase.
        between_steps_ns: the iteration outside its train step; by the device's clock it may be negative in a
            single iteration, where the host runs ahead of the device.
    """

    iteration: int
    data_loading_ns: int | None
    forward_ns: int | None
    backward_ns: int | None
    pipeline_recv_wait_ns: int | None
    pipeline_send_ns: int | None
    exposed_grad_comm_ns: int | None
    exposed_param_comm_ns: int | None
    exposed_stat_comm_ns: int | None
    zero_grad_ns: int | None
    optimizer_ns: int | None
    optimizer_copy_grad_ns: int | None
    optimizer_unscale_check_ns: int | None
    optimizer_clip_ns: int | None
    optimizer_inner_step_ns: int | None
    optimizer_copy_param_ns: int | None
    optimizer_count_zeros_ns: int | None
    forward_backward_other_ns: int | None
    other_ns: int | None
    between_steps_ns: int | None


@dataclass(frozen=True)
class RunFacts:
    """What the host knows about the run when training starts; unknown values are None.

    Attributes:
        package_version: of flagscale_perf.
        host: e.g. "FlagScale 0.8.0".
        script: the training script's file name.
        hostname, pid, world_size, restart_count: of rank 0's process.
        tensor_parallel, pipeline_parallel, data_parallel, context_parallel, expert_parallel: sizes.
        pipeline_schedule: "1f1b", "interleaved" or "dualpipev"; None without pipeline parallelism.
        device: e.g. "NVIDIA H200", or "CPU (rehearsal)".
        rehearsal: True when torch.cuda calls land on the CPU.
        dtype: "bf16", "fp16" or "fp32".
        peak_flop_per_s: dense peak of one device for dtype, the mean over all ranks where their devices
            differ; None if not known, and then there is no MFU and no HFU.
        peak_source: where the peak is from, or why there is none and how to set it.
        flops_convention: "causal_half".
        model_family: e.g. "llama".
        model: the shape the FLOPs are computed from.
        seq_length, micro_batch_size, global_batch_size, train_iters: of the host.
        resume_iteration: the iteration training continues after; 0 for a fresh start.
        tensorboard_dir: the host's, absolute; None if it writes none.
        missing: hooks or values that are not available, one phrase each.
        process_start_ns: monotonic mark of the start of rank 0's process; None where the system does not
            tell.
        device_uuid: of rank 0's device, as in "GPU-<uuid>" without the prefix; None without a device.
        device_memory_bytes: all the memory of that device; None without a device.
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
    pipeline_schedule: str | None
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
    process_start_ns: int | None = None
    device_uuid: str | None = None
    device_memory_bytes: int | None = None


@record("hardware", start="at_ns")
@dataclass(frozen=True)
class HardwareRecord:
    """One reading of rank 0's device, about one a second. Every value may be None: the device, its driver or
    its library does not tell.

    Attributes:
        at_ns: monotonic mark.
        power_mw: drawn now.
        energy_mj: counter since the driver was loaded.
        sm_clock_mhz, memory_clock_mhz: now.
        throttle: why the clocks are not higher, names of `training.hardware.REASONS` joined by ", "; "" for
            no reason.
        temperature_c: of the chip.
        ecc_uncorrected: memory errors that could not be corrected, counted since the last reset.
        xid: number of a critical error the driver has reported since the last reading; 0 for none.
        pcie_generation, pcie_width: of the link now.
        pcie_replays: counter of packets sent again.
        pcie_tx_bytes_per_s, pcie_rx_bytes_per_s: over the library's last 20 ms.
        nvlinks_active: number of links that are up.
        nvlink_tx_bytes, nvlink_rx_bytes: counters over all links.
        memory_used_bytes: by all processes together.
    """

    at_ns: int
    power_mw: int | None = None
    energy_mj: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle: str | None = None
    temperature_c: int | None = None
    ecc_uncorrected: int | None = None
    xid: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_replays: int | None = None
    pcie_tx_bytes_per_s: int | None = None
    pcie_rx_bytes_per_s: int | None = None
    nvlinks_active: int | None = None
    nvlink_tx_bytes: int | None = None
    nvlink_rx_bytes: int | None = None
    memory_used_bytes: int | None = None


@record("interval", start="end_wall_ns")
@dataclass(frozen=True)
class IntervalRecord:
    """The steps since the last one, summed: one line of the text log. Rates are made of the sums when
    rendering.

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
        mfu, hfu: what these sums make of the run's peak, a share of 1 that is suspect above it; None where
            the peak is not known.
        iteration_p50_ns, iteration_p95_ns, iteration_max_ns: over the steps summed.
        memory_bytes, memory_peak_bytes, memory_reserved_bytes, memory_retries: last known in the interval.
        energy_mj: taken up by rank 0's device in energy_ns; None without two readings of a plausible counter.
        energy_ns: between the last reading of the interval before and the last one of this interval.
        power_mw: mean of the readings; None without one, like the following.
        sm_clock_mhz: lowest reading.
        temperature_c: highest reading.
        throttle: every reason that was read, as in `HardwareRecord`.
        self_ns: sum; None unless every step summed has it.
        phases_ns: sums of `PhaseRecord`'s fields by their names without `_ns`; None unless every step summed
            has phases.
        bubble_ns: waiting for other stages that the pipeline's schedule makes inevitable; None like phases_ns
            and where there is no pipeline or its bubble is not known.
        imbalance_ns: the rest of that waiting; None like bubble_ns.
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
    memory_reserved_bytes: int | None
    memory_retries: int | None
    energy_mj: int | None
    energy_ns: int | None
    power_mw: int | None
    sm_clock_mhz: int | None
    temperature_c: int | None
    throttle: str | None
    self_ns: int | None
    phases_ns: dict[str, int | None] | None
    bubble_ns: int | None
    imbalance_ns: int | None
    dropped: int


Record = (
    RunHeader
    | StepRecord
    | PhaseRecord
    | HardwareRecord
    | NodeRecord
    | RanksRecord
    | StragglerRecord
    | IntervalRecord
    | EventRecord
    | RunEnd
)
