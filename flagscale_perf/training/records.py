"""Records of a training. Frozen, raw integers, units in the names; `None` means "not known", never 0.

A new field of `StepRecord` is one line here and one where it is measured; codec and ring follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, get_type_hints

from flagscale_perf.device.counters import HardwareRecord as HardwareRecord
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.live import BEGINS
from flagscale_perf.spine.live import FindingRecord as FindingRecord
from flagscale_perf.spine.records import record, room_of
from flagscale_perf.spine.slots import Wide
from flagscale_perf.training.curves import CurveRecord as CurveRecord
from flagscale_perf.training.curves import LoggedRecord as LoggedRecord
from flagscale_perf.training.host import HostRecord as HostRecord
from flagscale_perf.training.rank_records import RanksRecord as RanksRecord  # registers the others there, too


class Outcome(IntEnum):
    """What became of an iteration."""

    TRAINED = 0
    UPDATE_SKIPPED = 1  # the step ran, the optimizer did not: overflow, NaN, spiky loss
    DATA_SKIPPED = 2  # the host passed over the data without a step: --iterations-to-skip, --skip-iters-range


OUTCOMES = {int(outcome): outcome.name.lower() for outcome in Outcome}


@record("step", slot=1, start="start_ns", duration="iteration_ns")
class StepRecord(NamedTuple):
    """One finished iteration (or, for DATA_SKIPPED, a run of passed-over ones) as this rank saw it.

    A NamedTuple because it is made once a step on the training thread.

    Attributes:
        iteration: the host's number of the (last) iteration, counted from 1.
        iterations: how many iterations this record stands for; more than 1 only for DATA_SKIPPED.
        outcome: an `Outcome`.
        warmup: 1 for the first iteration after a start or resume, and for one in which the job stood still
            (`StandstillRecord`), else 0; left out of rates.
        start_ns: monotonic mark of the iteration's start.
        iteration_ns: start to next start, less eval_ns and checkpoint_ns, and what the job stood still.
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
        rank_tokens: tokens of this rank's own micro-batches, as the host's batches show them; None where all
            are `seq_length` long, or not known. Like the following two not in files of earlier versions.
        rank_squared_lengths: sum of the squared lengths of the documents in them, each of which attends to
            itself only; None like rank_tokens.
        rank_expert_tokens: tokens that this rank's experts received, summed over its layers; None where the
            host does not have that number on the CPU.
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
    rank_tokens: int | None
    rank_squared_lengths: int | None
    rank_expert_tokens: int | None


# Nothing counted, nothing measured: what passed-over data is recorded from.
NO_STEP = StepRecord._make(0 if hint is int else None for hint in get_type_hints(StepRecord).values())


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
    """One iteration's time on this rank by phase; in a run file just before its `StepRecord`.

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


@record("capture")
@dataclass(frozen=True)
class CaptureRecord:
    """Begins a capture: every rank's marks of the first to the last `iteration` follow (`CapturedRecord`).

    Attributes:
        timers: the host's, by name; a mark has a timer's place here. "" for a number that no timer has.
        why: "settled" or "straggler" where nobody asked for it; else "".
    """

    first_iteration: int
    iteration: int
    timers: list[str]
    why: str = ""


@record("captured", start="start_ns", duration="train_step_ns")
@dataclass(frozen=True)
class CapturedRecord:
    """The raw marks of one train step of one rank: when which of the host's timers started and stopped.

    Attributes:
        rank: whose step it is.
        iteration: as in the step's record.
        start_ns: monotonic mark of the step's start, on the clock of the rank's node.
        train_step_ns: as in the step's record.
        marks: for each mark two numbers: 2 * timer + (1 for its stop), and the nanoseconds since the mark
            before it, of the first one since start_ns. By the device's clock where there is a device; the
            mark 63 is then the step's end.
    """

    rank: int
    iteration: int
    start_ns: int
    train_step_ns: int
    marks: list[int]


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
        tensor_cycles: clocks of an SM in which its tensor cores were active, mean over all SMs, in tensor_ns;
            None like tensor_ns, and in files of earlier versions.
        tensor_ns: what the readings in the interval cover; those are left out that hold anything but trained
            steps, or during which another process was on the device. None without one.
        self_ns: sum; None unless every step summed has it.
        phases_ns: sums of `PhaseRecord`'s fields by their names without `_ns`; None unless every step summed
            has phases.
        bubble_ns: waiting for other stages that the pipeline's schedule makes inevitable; None like phases_ns
            and where there is no pipeline or its bubble is not known.
        imbalance_ns: the rest of that waiting; None like bubble_ns.
        dropped: records lost so far because the ring was full.
        host_ns: between the last reading of rank 0's host (`HostRecord`) before the interval and the last one
            in it; None without two readings, like what follows, and in files of earlier versions.
        cores: of the last reading.
        run_delay_ns, on_cpu_ns, cpu_stall_ns, memory_stall_ns, io_stall_ns, disk_bytes, network_bytes: what
            the counters of these names grew by in host_ns.
        memory_available_bytes: lowest reading.
        cpu_limit_milli: as in `HostRecord`, of the last reading.
        cpu_periods, cpu_throttled_periods: what these counters grew by in host_ns.
        loss, grad_norm: means of what the host logged of iterations in the interval; None where it logged
            nothing, and in files of earlier versions.
        learning_rate: the last that it logged; None like these.
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
    model_flops: Wide | None
    hardware_flops: Wide | None
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
    tensor_cycles: int | None
    tensor_ns: int | None
    self_ns: int | None
    phases_ns: dict[str, int | None] | None
    bubble_ns: int | None
    imbalance_ns: int | None
    dropped: int
    host_ns: int | None
    cores: int | None
    run_delay_ns: int | None
    on_cpu_ns: int | None
    cpu_stall_ns: int | None
    memory_stall_ns: int | None
    io_stall_ns: int | None
    memory_available_bytes: int | None
    disk_bytes: int | None
    network_bytes: int | None
    cpu_limit_milli: int | None
    cpu_periods: int | None
    cpu_throttled_periods: int | None
    loss: float | None
    grad_norm: float | None
    learning_rate: float | None


@record("standstill", start="start_ns", duration="stood_ns")
class StandstillRecord(NamedTuple):
    """A stretch in which rank 0's process stood still, known to a twentieth of a second.

    Attributes:
        start_ns: monotonic mark of its beginning.
        stood_ns: how long it was.
        with_writer: 1 if the writer stood still, too; 0 if it saw the trainer stopped.
    """

    start_ns: int
    stood_ns: int
    with_writer: int

    def finding(self) -> FindingRecord:
        """It is known when it is over: so it begins and does not end."""
        if self.with_writer:
            who = "all of it was stopped: a job that was suspended, a container that was paused"
        else:
            who = "rank 0's process was stopped, by SIGSTOP or a debugger"
        stood_s = self.stood_ns / NS_PER_S
        text = f"the job stood still for {stood_s:.1f} s: {who}; this time is in no rate"
        return FindingRecord("standstill", BEGINS, text, stood_s, "s")
