"""Runs with one planted cause each, as the writer would record them, and a healthy one.

The healthy run: 8 devices, 600 steps of 1 s, 40 % MFU, a start-up of 5 s; nothing to find. A plan changes
what it says of a step; everything that is derived (intervals, phases that add up) follows, so the true gain
is known by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import Record, RunEnd
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.host import HostRecord
from flagscale_perf.training.ledger.cuts import Cut, StepCuts
from flagscale_perf.training.phases import PHASES as PHASE_NAMES
from flagscale_perf.training.phases import PhaseJoin
from flagscale_perf.training.rank_records import CutsRecord, NodeRecord, RanksRecord, StragglerRecord
from flagscale_perf.training.ranks.rows import Member
from flagscale_perf.training.records import HardwareRecord, PhaseRecord, StepRecord
from flagscale_perf.training.utilisation import Scale
from flagscale_perf.training.window import IntervalWindow, end_mono_ns
from tests.fakes import MS, SECOND, make_event, make_facts, make_header, make_phases, make_reading, make_step
from tests.schedules import side_by_side

STEPS = 600
SHAPE = {
    "seq_length": 4096,
    "micro_batch_size": 1,
    "train_iters": 10_000,
    "peak_flop_per_s": 1e15,
    "flop_per_clock": 132 * 4096,
    "process_start_ns": -4 * SECOND,
}
PHASES = {
    "data_loading_ns": 5 * MS,
    "forward_ns": 300 * MS,
    "backward_ns": 590 * MS,
    "pipeline_recv_wait_ns": None,
    "pipeline_send_ns": None,
    "exposed_grad_comm_ns": 20 * MS,
    "exposed_param_comm_ns": 10 * MS,
    "optimizer_ns": 10 * MS,
    "optimizer_inner_step_ns": 40 * MS,
    "forward_backward_other_ns": 10 * MS,
    "other_ns": 10 * MS,
    "between_steps_ns": 5 * MS,
}


@dataclass(frozen=True)
class Plan:
    """What is planted.

    Attributes:
        facts: other facts of the header.
        options: of the monitor, that are set.
        step: other fields of the step of that number.
        extra: nanoseconds more in phases of the step of that number; the step is longer by them.
        reading: other fields of the reading of the device in the step of that number.
        host: fields of the reading of the host in the step of that number; None where it is not read.
        also: records at the end of the run.
        after_ns: from the last step to the end.
        steps: how many.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    step: Callable[[int], dict[str, Any]] = lambda number: {}
    extra: Callable[[int], dict[str, int]] = lambda number: {}
    reading: Callable[[int], dict[str, Any]] = lambda number: {}
    host: Callable[[int], dict[str, Any]] | None = None
    also: Iterable[Record] = ()
    after_ns: int = 0
    steps: int = STEPS


def records_of(plan: Plan) -> list[Record]:
    """The run's records, in the order of its file."""
    header = make_header(facts=make_facts(**SHAPE | plan.facts), **plan.options)
    window = IntervalWindow(
        10, Anchor(header.start_wall_ns, header.start_mono_ns), Scale.of(RunFacts.of(header.facts))
    )
    join = PhaseJoin(RunFacts.of(header.facts))
    records: list[Record] = [header]
    start_ns = 0
    for number in range(1, plan.steps + 1):
        phases, step = _pair(plan, number, start_ns)
        start_ns = end_mono_ns(step)
        reading: HardwareRecord = make_reading(start_ns - 1, **_read(step, plan.reading(number)))
        window.add_hardware(reading)
        hosts = [] if plan.host is None else [HostRecord(start_ns - 1, **plan.host(number))]
        for host in hosts:
            window.add_host(host)
        join.hold(phases)
        interval = window.add(step, phases=join.take(step))
        records += [reading, *hosts, phases, step, *([] if interval is None else [interval])]
    return [
        *records,
        *plan.also,
        RunEnd("completed", header.start_wall_ns + start_ns + plan.after_ns, plan.steps, 0),
    ]


def _read(step: StepRecord, planned: dict[str, Any]) -> dict[str, Any]:
    """What is read after a step; by the tensor cores' counter, that one of eight devices did its FLOPs."""
    cycles = (step.hardware_flops or 0) / 8 / SHAPE["flop_per_clock"]
    ppm = round(cycles / planned.get("sm_clock_mhz", 1980) * SECOND / step.iteration_ns)
    return {"tensor_ppm": ppm, "tensor_ns": step.iteration_ns - 1} | planned


def _pair(plan: Plan, number: int, start_ns: int) -> tuple[PhaseRecord, StepRecord]:
    extra = plan.extra(number)
    times = PHASES | {name: (PHASES.get(name) or 0) + more for name, more in extra.items()}
    iteration_ns = (
        sum(dur_ns for dur_ns in times.values() if dur_ns is not None) + (number % 3) * 2 * MS
    )  # nothing is quite even
    times["other_ns"] = (times["other_ns"] or 0) + (number % 3) * 2 * MS
    fields: dict[str, Any] = {
        "start_ns": start_ns,
        "iteration_ns": iteration_ns,
        "train_step_ns": iteration_ns - (times["between_steps_ns"] or 0),
        "device_ns": iteration_ns - 10 * MS,
        "warmup": int(number == 1),
        "tokens": 8 * 4096,
        "model_flops": 3_200 * 10**12,  # 40 % of eight devices of 1 PFLOP/s
        "hardware_flops": 3_300 * 10**12,
        "memory_bytes": 60 * 10**9,
        "memory_peak_bytes": 110 * 10**9,
        "memory_reserved_bytes": 120 * 10**9,
        "microbatches": 16,
    }
    return make_phases(number, **times), make_step(number, **fields | plan.step(number))


def write(plan: Plan, directory: Path) -> Path:
    """The run's file."""
    path = directory / "perf_records_20240129_103000.jsonl"
    path.write_bytes(b"".join(map(encode, records_of(plan))))
    return path


def ranks_record(iteration: int, **overrides: Any) -> RanksRecord:
    """Eight even ranks over the ten steps before: 950 ms of work in 1000 ms."""
    fields: dict[str, Any] = {
        "first_iteration": iteration - 9,
        "iteration": iteration,
        "ranks_per_entry": 1,
        "iteration_ns": [1000 * MS] * 8,
        "work_ns": [950 * MS] * 8,
        "wait_ns": [50 * MS] * 8,
        "data_ns": [5 * MS] * 8,
        "memory_peak_bytes": [110 * 10**9] * 8,
        "silent": [],
        "silent_count": 0,
    }
    return RanksRecord(**fields | overrides)


WAYS = {  # the phases on the way to each cut
    "exposed_grad_comm_ns": ("data_loading_ns", "forward_ns", "backward_ns", "forward_backward_other_ns"),
    "exposed_param_comm_ns": ("optimizer_ns", "optimizer_inner_step_ns", "other_ns", "between_steps_ns"),
}


def cuts_records(late: Callable[[int, int], dict[str, int]], steps: int = STEPS) -> list[CutsRecord]:
    """Eight ranks side by side in every step but the first: `late` says what the rank of that number takes
    longer in the step of that number, by phase.
    """
    members = []
    for rank in range(8):
        cuts = []
        for number in range(2, steps + 1):
            at_cuts = []
            for wait, names in WAYS.items():
                most = max(sum(late(other, number).get(name, 0) for name in names) for other in range(8))
                own = {
                    _place(name): (PHASES[name] or 0)
                    + late(rank, number).get(name, 0)
                    + (number * (rank + 3)) % 7 * MS // 2 * (name == "forward_ns")
                    for name in names
                }
                uneven = max((number * (each + 3)) % 7 for each in range(8)) * MS // 2
                whole = sum(PHASES[name] or 0 for name in names) + most
                whole += uneven if "forward_ns" in names else 0
                wait_ns = whole - sum(own.values()) + (PHASES[wait] or 0)
                at_cuts.append(Cut(_place(wait), wait_ns, own))
            cuts.append(StepCuts(number, tuple(at_cuts)))
        members.append(Member(rank, rank, cuts))
    return side_by_side(members)


def _place(name: str) -> int:
    return PHASE_NAMES.index(name.removesuffix("_ns"))


def node_record(**overrides: Any) -> NodeRecord:
    """One node with eight devices, all in the first stage."""
    fields: dict[str, Any] = {
        "hostname": "node0",
        "ranks": list(range(8)),
        "pids": list(range(100, 108)),
        "devices": ["NVIDIA H200"] * 8,
        "stages": [0] * 8,
    }
    return NodeRecord(**fields | overrides)


def _troubled_ranks(iteration: int) -> RanksRecord:
    """Ranks 0 to 5 load data 100 ms longer; rank 5 takes 200 ms more while it is slow. Whoever works less
    waits for who works most.
    """
    work_ns = [1070 * MS] * 6 + [970 * MS] * 2
    work_ns[5] += 200 * MS if _is_slow(iteration) else 0
    iteration_ns = max(work_ns) + 30 * MS
    return ranks_record(
        iteration,
        iteration_ns=[iteration_ns] * 8,
        work_ns=work_ns,
        wait_ns=[iteration_ns - dur_ns for dur_ns in work_ns],
        data_ns=[105 * MS] * 6 + [5 * MS] * 2,
    )


def _troubled(rank: int, step: int) -> dict[str, int]:
    """The same, step by step."""
    slow = {"forward_ns": 200 * MS} if rank == 5 and _is_slow(step) else {}
    return slow | ({"data_loading_ns": 100 * MS} if rank < 6 else {})


def _is_slow(iteration: int) -> bool:
    return 300 < iteration <= 500


TROUBLED = Plan(
    facts={
        "process_start_ns": -400 * SECOND,
        "arguments": {
            "async_save": None,
            "ckpt_assume_constant_structure": False,
            "ckpt_format": "torch_dist",
            "ckpt_fully_parallel_load": False,
            "ckpt_fully_parallel_save": True,
            "create_attention_mask_in_dataloader": False,
            "data_cache_path": "cache",
            "data_parallel_size": 4,
            "load": "checkpoints",
            "manual_gc": True,
            "mock_data": False,
            "no_load_optim": None,
            "num_workers": 2,
            "save_interval": 100,
        },
    },
    step=lambda number: {"checkpoint_ns": 9 * SECOND} if number % 100 == 0 else {},
    extra=lambda number: {
        "data_loading_ns": 100 * MS,
        "exposed_grad_comm_ns": 200 * MS if _is_slow(number) else 0,
    },
    reading=lambda number: {"throttle": "power"},
    also=[
        node_record(),
        *cuts_records(lambda rank, step: _troubled(rank, step)),
        *map(_troubled_ranks, range(10, STEPS + 1, 10)),
        StragglerRecord(
            301,
            500,
            True,
            [5],
            "node0",
            "NVIDIA H200",
            0,
            "forward",
            200 * MS,
            1300 * MS,
            "peers",
            None,
            "clock capped by power",
        ),
        make_event(
            "slow",
            at_ns=371 * SECOND,
            iteration=310,
            text="rank 5 on node0 works 200 ms longer than its peers",
        ),
    ],
)
