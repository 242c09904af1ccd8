"""Runs with one planted cause each, and the gain that removing it would bring, known by construction."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.spine.live import BEGINS, FindingRecord
from flagscale_perf.spine.records import Record
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.rank_records import StragglerRecord
from flagscale_perf.training.records import CaptureRecord, StandstillRecord
from tests.fakes import MS, SECOND
from tests.pipelines import Schedule
from tests.synthetic import PHASES, STEPS, Plan, cuts_records, node_record, ranks_record, write


def slow_rank(**overrides: object) -> StragglerRecord:
    fields = {
        "first_iteration": 301,
        "iteration": 500,
        "is_over": True,
        "ranks": [5],
        "hostname": "node4",
        "device": "NVIDIA H200",
        "stage": 0,
        "phase": "forward",
        "excess_ns": 200 * MS,
        "iteration_ns": 1200 * MS,
        "against": "peers",
        "cause": None,
        "observed": "clock capped by power",
    }
    return StragglerRecord(**fields | overrides)  # type: ignore[arg-type]


def hanging(ranks: list[int], places: list[str]) -> FindingRecord:
    """What the writer says of a hang."""
    evidence = {"ranks": ranks, "places": places}
    return FindingRecord("hang", BEGINS, "no step for 61 s", 61.0, "s", evidence=evidence, iteration=600)


def slow_link() -> list[Record]:
    """Captured steps of four stages and two replicas; the messages between ranks 3 and 5 take 400 ms more."""
    job = Schedule(stages=4, replicas=2, batches=8, seed=7, least_ms=90)
    job.message_ns, job.longer_ns = MS, {(3, 5): 400 * MS}
    captured, _ = job.run()
    node = node_record(stages=[rank // 2 for rank in range(8)])
    return [node, CaptureRecord(7, 8, []), *captured]


LAST = random.Random(1).choices(range(8), k=STEPS + 1)  # whose turn it is


def in_turns(step: int, phase: str, rank: int = 0) -> dict[str, int]:
    """What that rank takes longer in a step, in the phase or for the rank whose turn it is."""
    return {phase if LAST[step] == rank else "exposed_grad_comm_ns": 200 * MS}


def turns(phase: str, more_tokens: int = 0) -> list[Record]:
    """The records of all ranks of that; who takes longer has so many tokens more."""
    found = cuts_records(lambda rank, step: when(LAST[step] == rank, **{phase: 200 * MS}))
    for number, one in enumerate(found):
        tokens = [1000 + more_tokens * (LAST[one.iteration] == rank) for rank in range(8)]
        found[number] = replace(one, work=[value for each in tokens for value in (each, -1, -1, 1)])
    return [node_record(), ranks_record(STEPS), *found]


def when(condition: bool, **fields: int) -> dict[str, int]:
    return fields if condition else {}


# Rank 5 of eight takes 200 ms longer in its forward pass in 200 of the 600 steps.
SLOW_RANK = [
    node_record(hostname="node4"),
    ranks_record(STEPS),
    *cuts_records(lambda rank, step: when(rank == 5 and 300 < step <= 500, forward_ns=200 * MS)),
    slow_rank(),
]
UNEVEN = set(random.Random(1).sample(range(20, STEPS), 45))
PIPELINE = {"pipeline_parallel": 4, "data_parallel": 1, "pipeline_schedule": "1f1b"}

# name of the first finding -> what is planted, and the true gain by construction; None where nothing can be
# known of it.
# A healthy step takes 1002 ms in the mean.
PLANTED: dict[str, tuple[Plan, float | None]] = {
    "data_stall": (Plan(extra=lambda n: {"data_loading_ns": 120 * MS}), 0.12),
    "straggler": (
        Plan(extra=lambda n: when(300 < n <= 500, exposed_grad_comm_ns=200 * MS), also=SLOW_RANK),
        200 * 0.2 / 600,
    ),
    "slow_stage": (
        # Four stages, one of them with 200 ms more, which rank 0 waits for beyond the bubble of 3 x 895 / 64
        # ms: each would
        # get 50 of them, so 150 of 1242 ms are saved.
        Plan(
            facts=PIPELINE,
            step=lambda n: {"microbatches": 64},
            extra=lambda n: {"pipeline_recv_wait_ns": 242 * MS},
        ),
        0.150 / (1.244 - 0.150),
    ),
    "pipeline_bubble": (
        # With 8 micro-batches, 3 of them in time: 895 x 3 / 8 ms. The wait is nothing else.
        Plan(
            facts=PIPELINE,
            step=lambda n: {"microbatches": 8},
            extra=lambda n: {"pipeline_recv_wait_ns": 335 * MS},
        ),
        0.335,
    ),
    # Each rank in turn takes 200 ms longer: with as many tokens as the others; or with twice as many, which
    # leaves an eighth of it to each.
    "last_in_turns": (
        Plan(extra=lambda n: in_turns(n, "data_loading_ns"), also=turns("data_loading_ns")),
        0.2,
    ),
    "uneven_batches": (
        Plan(
            facts={"work_flops": {"tokens": 6e9}},
            extra=lambda n: in_turns(n, "forward_ns"),
            also=turns("forward_ns", more_tokens=1000),
        ),
        0.175 / (1.2 - 0.175),
    ),
    "slow_link": (Plan(facts=PIPELINE | {"data_parallel": 2}, also=slow_link()), None),
    "exposed_comm": (
        Plan(extra=lambda n: {"exposed_grad_comm_ns": 100 * MS, "exposed_param_comm_ns": 60 * MS}),
        0.19,
    ),
    "throttling": (
        Plan(
            extra=lambda n: when(200 < n <= 400, forward_ns=100 * MS, backward_ns=200 * MS),
            reading=lambda n: {"throttle": "temperature", "sm_clock_mhz": 1400} if 200 < n <= 400 else {},
        ),
        0.3 * 200 / 600,
    ),
    "host_short_of_cpu": (
        # A third of each step of 1.5 s: what it costs shows in loading data and in waiting for the others.
        Plan(
            extra=lambda n: {"data_loading_ns": 300 * MS, "exposed_grad_comm_ns": 200 * MS},
            host=lambda n: {"cores": 2, "run_delay_ns": 500 * MS * n, "cpu_stall_ns": 900 * MS * n},
        ),
        0.5,
    ),
    "host_short_of_memory": (
        Plan(
            extra=lambda n: {"other_ns": 200 * MS},
            host=lambda n: {"run_delay_ns": 0, "memory_stall_ns": 200 * MS * n},
        ),
        0.2,
    ),
    "hang": (Plan(also=[hanging([5], ["/job/train.py:12 step"])], after_ns=70 * SECOND), 70 / 602),
    "standstill": (Plan(also=[StandstillRecord(0, 40 * SECOND, 1)], after_ns=50 * SECOND), None),
    "memory_limit": (Plan(step=lambda n: {"memory_peak_bytes": 138 * 10**9}), None),
    "allocator_retries": (
        Plan(
            step=lambda n: {"memory_retries": n // 50},
            extra=lambda n: when(n % 50 == 0, forward_ns=2000 * MS),
        ),
        12 * 2 / 600,
    ),
    "checkpoint": (Plan(step=lambda n: when(n % 100 == 0, checkpoint_ns=20 * SECOND)), 120 / 605),
    "evaluation": (Plan(step=lambda n: when(n % 100 == 0, eval_ns=15 * SECOND)), 90 / 605),
    "startup": (Plan(facts={"process_start_ns": -400 * SECOND}), 400 / 601),
    "slow_start": (Plan(extra=lambda n: when(2 <= n <= 40, forward_ns=2 * SECOND)), 39 * 2 / 606),
    "periodic_steps": (Plan(extra=lambda n: when(n % 40 == 7, other_ns=500 * MS)), 15 * 0.5 / 600),
    "slow_steps": (Plan(extra=lambda n: when(n in UNEVEN, forward_ns=600 * MS)), 45 * 0.6 / 601),
    "jitter": (
        Plan(extra=lambda n: when(n in UNEVEN, forward_ns=300 * MS, backward_ns=300 * MS)),
        45 * 0.6 / 601,
    ),
    "long_phase": (Plan(extra=lambda n: {"optimizer_ns": 250 * MS}), 0.25),
    "slowdown": (
        Plan(
            extra=lambda n: {name: (dur_ns or 0) // 10 for name, dur_ns in PHASES.items()} if n > 300 else {}
        ),
        0.05,
    ),
    "growing_phase": (Plan(extra=lambda n: {"other_ns": n * MS}), 0.3),
    "host_bound": (
        Plan(
            extra=lambda n: {"forward_ns": 300 * MS},
            step=lambda n: {"model_flops": 1_600 * 10**12, "hardware_flops": 1_600 * 10**12},
        ),
        None,
    ),
    "small_micro_batch": (
        Plan(
            facts={"seq_length": 1024, "micro_batch_size": 1},
            step=lambda n: {
                "memory_peak_bytes": 40 * 10**9,
                "model_flops": 800 * 10**12,
                "hardware_flops": 800 * 10**12,
            },
        ),
        None,
    ),
    "full_recompute": (
        # A third more FLOPs: of 890 ms of computing a quarter.
        Plan(step=lambda n: {"memory_peak_bytes": 40 * 10**9, "hardware_flops": 3_200 * 10**12 * 4 // 3}),
        0.2225 / (1.002 - 0.2225),
    ),
    "mfu_by_counter": (Plan(reading=lambda n: {"tensor_ppm": 300_000}), None),
    "mfu_suspect": (Plan(facts={"peak_flop_per_s": 5e14}), None),
    "lost": (Plan(step=lambda n: {"outcome": 1, "tokens": 0, "samples": 0} if n % 10 == 0 else {}), 60 / 545),
    "idle": (Plan(after_ns=200 * SECOND), 200 / 605),
}


def findings_of(plan: Plan, directory: Path) -> list[Finding]:
    return read_report(open_session(write(plan, directory))).findings
