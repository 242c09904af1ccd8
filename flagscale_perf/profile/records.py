"""Records of profiled steps.

A rank keeps these in its own ring, where `process` is 0; the writer of its machine gives each rank a number.
Texts that repeat (modules, operators, phases, groups) are kept once, as a `NameRecord`; number 0 is "".
Every other record has a `number`, from 1, in one series of its process without gaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from flagscale_perf.spine.records import record


class Sort(IntEnum):
    """The kind of work that a row's time was spent on."""

    OPERATOR = 0  # in an operator, without what it calls
    HOST = 1  # in a module's Python, between its operators
    ENGINE = 2  # in autograd's engine, between the backward's nodes
    COMMUNICATION = 3  # in a collective, waiting for other ranks included


@record("profile_rank", slot=24)
class RankRecord(NamedTuple):
    """This process's place in its job. None for what is unknown or unused.

    Attributes:
        rank, world_size: among all processes of the job.
        tensor, tensor_size: place in, and size of, its tensor-parallel group.
        pipeline, pipeline_size: the same of its pipeline-parallel group.
        data, data_size: the same of its data-parallel group, context parallelism folded in.
        expert, expert_size: the same of its expert-parallel group.
        host: name of what runs the model: "megatron", "huggingface", "vllm" or "torch".
        model: name of the model's class.
        device: name of the device.
        mode: name of how the model runs: "eager", "compiled" or "graphs".
        modules: how many modules have a range.
    """

    process: int
    number: int
    rank: int
    world_size: int
    tensor: int | None
    tensor_size: int | None
    pipeline: int | None
    pipeline_size: int | None
    data: int | None
    data_size: int | None
    expert: int | None
    expert_size: int | None
    host: int
    model: int
    device: int
    mode: int
    modules: int


# What the time of a profiled step goes to; each has a field in `StepRecord`. The residual is what
# `rows.rows_of` has not measured.
PARTS = ("operators", "outside", "communication", "host", "engine", "residual")


@record("profile_step", slot=25, start="start_ns", duration="total_ns")
class StepRecord(NamedTuple):
    """One step: a training iteration, or one forward pass of a serving model.

    Attributes:
        window: number of the `WindowRecord` it belongs to.
        iteration: as the host counts them; None where it does not.
        phase: name of what kind of step it is: "train", "prefill", "decode" or "forward".
        is_profiled: 0 for a clean step, run in between to see what profiling costs.
        start_ns: monotonic mark.
        total_ns: time until the next step's start, or until the host says that it is over.
        operators_ns: time in operators that run in a module, forward, backward or again.
        outside_ns: time in operators outside of any module: loss, optimizer, data.
        host_ns: time in Python, inside of modules or not.
        engine_ns: time in autograd's engine.
        communication_ns: time in collectives, where the rank's main thread is in them.
        residual_ns: the rest; may be negative.
        device_busy_ns: time in which the device ran at least one kernel; None without a device.
        samples, tokens: of the step; None where the host does not say.
        events: of the profiler.
    """

    process: int
    number: int
    window: int
    iteration: int | None
    phase: int
    is_profiled: int
    start_ns: int
    total_ns: int
    operators_ns: int | None
    outside_ns: int | None
    host_ns: int | None
    engine_ns: int | None
    communication_ns: int | None
    residual_ns: int | None
    device_busy_ns: int | None
    samples: int | None
    tokens: int | None
    events: int | None


@record("profile_row", slot=26)
class RowRecord(NamedTuple):
    """Sum over the profiled steps of a window: one operator of one module in one phase.

    Attributes:
        window: number of the `WindowRecord`.
        step_phase: name, as `StepRecord.phase`.
        phase: name of the part of the step: "forward", "backward", "recompute", "optimizer" or "other".
        module: name of its path in the model, such as "model.layers.0.self_attn.q_proj"; 0 outside of any.
        sort: a `Sort`.
        op: name of the operator, such as "aten::mm"; 0 for one of HOST or ENGINE.
        steps: how many it ran in.
        runs: how often.
        self_ns: on the rank's threads, what it calls in turn aside; all self times of a step's rows, and its
            residual, make the step.
        total_ns: time including what it calls in turn.
        device_ns: time of the kernels that it launched; None without a device.
        flops: FLOPs of all its runs, from the step with shapes; None where not known for this operator.
        moved_bytes: what its runs must at least read and write, from the same step.
    """

    process: int
    number: int
    window: int
    step_phase: int
    phase: int
    module: int
    sort: int
    op: int
    steps: int
    runs: int
    self_ns: int
    total_ns: int
    device_ns: int | None
    flops: int | None
    moved_bytes: int | None


@record("profile_collective", slot=27, start="start_ns", duration="total_ns")
class CollectiveRecord(NamedTuple):
    """One collective or point-to-point operation of a rank, waiting included. What belongs together over the
    ranks has the same group and sequence, or the same group, op and ordinal where there is none.

    Attributes:
        window, step: numbers of its `WindowRecord` and `StepRecord`.
        phase, module: names, as of a row; module 0 where it runs in none.
        start_ns: monotonic mark.
        total_ns: time from there until this rank has its result.
        op: name of what was executed, such as "gloo:all_reduce".
        call: name of what was called, such as "c10d::allreduce_".
        group: name of the process group with its ranks (`operations.Group`), such as
            "TENSOR_MODEL_PARALLEL_GROUP 0-1", so that it is the same on all its ranks and on no other.
        group_size: ranks in it; None where that is not known.
        sequence: number in the group, the same on all ranks; None where the profiler has none.
        ordinal: how many of this group and op (and peer) ran before it in the window.
        peer: for point-to-point, the other rank in the group; None for a collective.
        is_send: for point-to-point: 1 if this rank sends.
        size_bytes: size of the buffer, as nccl-tests counts it.
        exposed_ns: time in which the rank computed nothing else.
    """

    process: int
    number: int
    window: int
    step: int
    phase: int
    module: int
    start_ns: int
    total_ns: int
    op: int
    call: int
    group: int
    group_size: int | None
    sequence: int | None
    ordinal: int
    peer: int | None
    is_send: int | None
    size_bytes: int | None
    exposed_ns: int | None


@record("profile_memory", slot=28)
class MemoryRecord(NamedTuple):
    """Memory of a module, or of one operator in it, in one typical profiled step.

    Attributes:
        window: number of the `WindowRecord`.
        step_phase, phase, module, op: names, as of a row; op 0 for the module as a whole.
        allocations: how many.
        allocated_bytes: all that it asks for.
        retained_bytes: what is still held when it returns; negative where it frees more.
        transient_bytes: what it holds at most beyond what it began with and retains.
        largest_bytes: its largest allocation.
        peak_bytes: level of the whole process while it runs, at most, above that at the step's start.
    """

    process: int
    number: int
    window: int
    step_phase: int
    phase: int
    module: int
    op: int
    allocations: int
    allocated_bytes: int
    retained_bytes: int
    transient_bytes: int
    largest_bytes: int
    peak_bytes: int


@record("profile_window", slot=29, start="start_ns", duration="total_ns")
class WindowRecord(NamedTuple):
    """Profiled steps, one after another, with clean ones in between; follows its steps and rows.

    Attributes:
        start_ns: monotonic mark of the first step.
        total_ns: to the end of the last.
        steps, clean_steps: profiled and not.
        events: of the profiler, in all profiled steps.
        dropped_events: those beyond the number that may be kept.
        begin_ns, end_ns: time to start and to stop the profiler, outside of the steps.
        reduce_ns: time to make rows of the events, beside the training where that is possible.
        reason: name of why there is no row; 0 where there are some.
        calls: name of the file beside the run file that has each run of each operator (`calls.read_calls`); 0
            where there is none.
    """

    process: int
    number: int
    start_ns: int
    total_ns: int
    steps: int
    clean_steps: int
    events: int
    dropped_events: int
    begin_ns: int
    end_ns: int
    reduce_ns: int
    reason: int
    calls: int


@record("profile_begin", slot=35, start="start_ns")
class BeginRecord(NamedTuple):
    """A window has begun. Its `WindowRecord` follows once it is over, and never where its process has been
    killed in it.

    Attributes:
        start_ns: monotonic mark.
        iteration: of its first step, as `StepRecord.iteration`.
    """

    process: int
    number: int
    start_ns: int
    iteration: int | None


@record("profile_roof", slot=30)
class RoofRecord(NamedTuple):
    """The highest rate that this rank's device reaches, measured by a run of its own.

    Attributes:
        roof: name: "matmul.float32", "matmul.bfloat16", "copy" ...
        per_second: FLOP, or bytes read and written.
    """

    process: int
    number: int
    roof: int
    per_second: int


# Fields that hold the number of a name, by record type.
NAMES: Mapping[type, frozenset[str]] = {
    RankRecord: frozenset({"host", "model", "device", "mode"}),
    StepRecord: frozenset({"phase"}),
    RowRecord: frozenset({"step_phase", "phase", "module", "op"}),
    CollectiveRecord: frozenset({"phase", "module", "op", "call", "group"}),
    MemoryRecord: frozenset({"step_phase", "phase", "module", "op"}),
    WindowRecord: frozenset({"reason", "calls"}),
    RoofRecord: frozenset({"roof"}),
    BeginRecord: frozenset(),
}
