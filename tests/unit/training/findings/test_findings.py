"""Findings: each of many runs has one planted cause, and that is what is found first, with the gain that
removing it would bring.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flagscale_perf.analysis.report import Finding
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.findings.advice import ADVICE
from flagscale_perf.training.findings.thresholds import THRESHOLDS
from flagscale_perf.training.ranks.records import StragglerRecord
from tests.fakes import MS, SECOND
from tests.synthetic import STEPS, Plan, node_record, ranks_record, write


def slow_rank(**overrides: object) -> StragglerRecord:
    fields = {
        "first_iteration": 301, "iteration": 500, "is_over": True, "ranks": [5], "hostname": "node4", "device": "NVIDIA H200",
        "stage": 0, "phase": "forward", "excess_ns": 200 * MS, "iteration_ns": 1200 * MS, "against": "peers",
        "cause": "clock capped by power",
    }  # fmt: skip
    return StragglerRecord(**fields | overrides)  # type: ignore[arg-type]


def when(condition: bool, **fields: int) -> dict[str, int]:
    return fields if condition else {}


UNEVEN = set(random.Random(1).sample(range(20, STEPS), 45))
PIPELINE = {"pipeline_parallel": 4, "data_parallel": 1, "pipeline_schedule": "1f1b"}

# name of the first finding -> what is planted, and the true gain by construction; None where nothing can be
# known of it.
# A healthy step takes 1002 ms in the mean.
PLANTED: dict[str, tuple[Plan, float | None]] = {
    "data_stall": (Plan(extra=lambda n: {"data_loading_ns": 120 * MS}), 0.12),
    "straggler": (
        Plan(extra=lambda n: when(300 < n <= 500, exposed_grad_comm_ns=200 * MS), also=[slow_rank()]),
        200 * 0.2 / 600,
    ),
    "slow_stage": (
        # Four stages, one of them with 200 ms more, which rank 0 waits for beyond the bubble of 3 x 895 / 64
        # ms: each would
        # get 50 of them, so 150 of 1242 ms are saved.
        Plan(facts=PIPELINE, step=lambda n: {"microbatches": 64}, extra=lambda n: {"pipeline_recv_wait_ns": 242 * MS}),
        0.150 / (1.244 - 0.150),
    ),
    "pipeline_bubble": (
        # With 8 micro-batches, 3 of them in time: 895 x 3 / 8 ms. The wait is nothing else.
        Plan(facts=PIPELINE, step=lambda n: {"microbatches": 8}, extra=lambda n: {"pipeline_recv_wait_ns": 335 * MS}),
        0.335,
    ),
    "exposed_comm": (Plan(extra=lambda n: {"exposed_grad_comm_ns": 100 * MS, "exposed_param_comm_ns": 60 * MS}), 0.19),
    "throttling": (
        Plan(
            extra=lambda n: when(200 < n <= 400, forward_ns=100 * MS, backward_ns=200 * MS),
            reading=lambda n: {"throttle": "temperature", "sm_clock_mhz": 1400} if 200 < n <= 400 else {},
        ),
        0.3 * 200 / 600,
    ),
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
    "gc_pauses": (Plan(extra=lambda n: when(n % 40 == 7, other_ns=500 * MS)), 15 * 0.5 / 600),
    "jitter": (Plan(extra=lambda n: when(n in UNEVEN, forward_ns=600 * MS)), 45 * 0.6 / 601),
    "small_micro_batch": (
        Plan(
            facts={"seq_length": 1024, "micro_batch_size": 1},
            step=lambda n: {"memory_peak_bytes": 40 * 10**9, "model_flops": 800 * 10**12, "hardware_flops": 800 * 10**12},
        ),
        None,
    ),
    "full_recompute": (
        # A third more FLOPs: of 890 ms of computing a quarter.
        Plan(step=lambda n: {"memory_peak_bytes": 40 * 10**9, "hardware_flops": 3_200 * 10**12 * 4 // 3}),
        0.2225 / (1.002 - 0.2225),
    ),
    "mfu_suspect": (Plan(facts={"peak_flop_per_s": 5e14}), None),
    "lost": (Plan(step=lambda n: {"outcome": 1, "tokens": 0, "samples": 0} if n % 10 == 0 else {}), 60 / 545),
    "idle": (Plan(after_ns=200 * SECOND), 200 / 605),
}  # fmt: skip


def findings_of(plan: Plan, directory: Path) -> list[Finding]:
    return read_report(write(plan, directory)).findings


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_cause_is_found_first_with_its_gain(name: str, tmp_path: Path) -> None:
    plan, true_gain = PLANTED[name]
    first = findings_of(plan, tmp_path)[0]
    assert first.name == name
    assert first.evidence and first.causes and first.changes
    if true_gain is not None:
        assert first.gain == pytest.approx(true_gain, rel=0.2)


def test_every_kind_of_finding_is_planted() -> None:
    assert set(PLANTED) == set(ADVICE)


def test_a_healthy_run_has_none(tmp_path: Path) -> None:
    report = read_report(write(Plan(), tmp_path))
    assert (report.findings, report.unjudged) == (
        [],
        ["other ranks than the first: the file has nothing of them"],
    )


def test_even_ranks_have_none(tmp_path: Path) -> None:
    assert (
        findings_of(Plan(also=[node_record(), *(ranks_record(n) for n in range(10, STEPS, 10))]), tmp_path)
        == []
    )


def test_late_data_names_the_ranks_that_wait_for_it(tmp_path: Path) -> None:
    late = [5 * MS] * 6 + [110 * MS] * 2
    found = findings_of(
        Plan(also=[node_record(), *(ranks_record(n, data_ns=late) for n in range(10, STEPS, 10))]), tmp_path
    )
    assert [(each.name, each.title, each.ranks) for each in found] == [
        ("data_stall", "Waiting for data takes 11.0 % of the steps' time on ranks 6-7", [6, 7])
    ]
    assert found[0].gain == pytest.approx(0.11 / 0.89)
    assert (found[0].evidence[0].value, found[0].evidence[0].limit) == (0.11, THRESHOLDS["data_stall"].value)
    assert found[0].changes[0].flags == ["--num-workers"]


def test_a_slow_stage_is_seen_side_by_side_too(tmp_path: Path) -> None:
    # Of 1000 ms stage 1 works 950, the others 750: each would get 800.
    work = [750 * MS, 750 * MS, 950 * MS, 950 * MS, 750 * MS, 750 * MS, 750 * MS, 750 * MS]
    stages = node_record(stages=[0, 0, 1, 1, 2, 2, 3, 3])
    found = findings_of(
        Plan(also=[stages, *(ranks_record(n, work_ns=work) for n in range(10, STEPS, 10))]), tmp_path
    )
    assert [(each.name, each.ranks) for each in found] == [("slow_stage", [2, 3])]
    assert (
        found[0].title
        == "Pipeline stage 1 has more to do: an even division would save 15.0 % of the steps' time"
    )
    assert found[0].gain == pytest.approx(0.15 / 0.85)


def test_a_straggler_has_place_phase_and_cause(tmp_path: Path) -> None:
    (found,) = findings_of(PLANTED["straggler"][0], tmp_path)
    assert (
        found.title == "Rank 5 on node4 makes the others wait 200.0 ms of each step of 1200.0 ms, in forward"
    )
    assert (found.ranks, found.first_iteration, found.iteration) == ([5], 301, 500)
    assert found.causes[0] == "clock capped by power"
    assert (found.cost_s, found.gain_of) == (pytest.approx(40), "tokens/s")


def test_a_rank_that_is_late_with_its_data_is_a_data_stall_and_no_straggler_besides(tmp_path: Path) -> None:
    late = slow_rank(first_iteration=1, iteration=STEPS, phase="data_loading", excess_ns=105 * MS)
    alone = findings_of(Plan(extra=lambda n: {"exposed_grad_comm_ns": 105 * MS}, also=[late]), tmp_path)
    assert [each.name for each in alone] == ["straggler"]
    data = [5 * MS] * 5 + [110 * MS] + [5 * MS] * 2
    ranks = [node_record(), *(ranks_record(n, data_ns=data) for n in range(10, STEPS, 10))]
    both = findings_of(
        Plan(extra=lambda n: {"exposed_grad_comm_ns": 105 * MS}, also=[*ranks, late]), tmp_path
    )
    assert [(each.name, each.ranks) for each in both] == [("data_stall", [5])]


def test_one_that_is_not_over_costs_until_now(tmp_path: Path) -> None:
    (found,) = findings_of(
        Plan(
            extra=lambda n: when(n > 300, exposed_grad_comm_ns=200 * MS),
            also=[slow_rank(iteration=310, is_over=False)],
        ),
        tmp_path,
    )
    assert (found.iteration, found.cost_s) == (STEPS, pytest.approx(60))


def test_the_costlier_one_comes_first_and_risks_last(tmp_path: Path) -> None:
    plan = Plan(
        step=lambda n: (
            {"memory_peak_bytes": 138 * 10**9}
            | when(n % 100 == 0, eval_ns=15 * SECOND, checkpoint_ns=20 * SECOND)
        ),
        extra=lambda n: {"data_loading_ns": 60 * MS},
    )
    found = findings_of(plan, tmp_path)
    assert [each.name for each in found] == ["checkpoint", "evaluation", "data_stall", "memory_limit"]
    assert [None if each.cost_s is None else round(each.cost_s) for each in found] == [120, 90, 39, None]


def test_memory_that_grows_towards_its_end_is_a_risk(tmp_path: Path) -> None:
    found = findings_of(Plan(step=lambda n: {"memory_peak_bytes": 10**11 + n * 10**7}), tmp_path)
    assert [each.title for each in found] == [
        "Memory of rank 0's device is 75.2 % full at peak and grows: out of memory in 3500 steps at the latest if it goes on like this"
    ]


def test_a_few_steps_say_nothing_about_speed(tmp_path: Path) -> None:
    path = write(PLANTED["data_stall"][0], tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:40]))
    report = read_report(path)
    assert (report.findings, report.unjudged[0]) == ([], "the speed of the steps: 11 are too few")


def test_every_limit_has_a_source() -> None:
    assert [name for name, threshold in THRESHOLDS.items() if len(threshold.source) < 20] == []
