"""The values of the metrics, by numbers that can be added up by hand."""

from __future__ import annotations

from typing import Any

from flagscale_perf.spine.records import Record, RunEnd
from flagscale_perf.training.rank_records import RanksRecord, StragglerRecord
from flagscale_perf.training.summary.metrics import RUN_LABELS, TABLE, RunMetrics
from tests.fakes import (
    MS,
    SECOND,
    make_event,
    make_facts,
    make_header,
    make_interval,
    make_skipped_data,
    make_step,
)

START_S = 1_706_524_200


def values_after(*records: Record, header: Any = None) -> dict[str, Any]:
    metrics = RunMetrics(header or make_header())
    for record in records:
        metrics.add(record)
    return metrics.values()


def alone(values: dict[str, Any], *names: str) -> list[float]:
    """The values of metrics without labels."""
    return [values[name][()] for name in names]


def make_straggler(**overrides: Any) -> StragglerRecord:
    fields: dict[str, Any] = {
        "first_iteration": 1,
        "iteration": 10,
        "is_over": False,
        "ranks": [3],
        "hostname": "node0",
        "device": "NVIDIA H200",
        "stage": 0,
        "phase": "forward",
        "excess_ns": 20 * MS,
        "iteration_ns": 100 * MS,
        "against": "peers",
        "cause": None,
    }
    return StragglerRecord(**fields | overrides)


def test_what_is_known_at_the_start_and_counters_at_zero() -> None:
    values = values_after()
    assert values["run_info"] == {
        (
            "20240129_103000",
            "0.1.0",
            "FlagScale 0.8.0",
            "train_gpt.py",
            "node0",
            "NVIDIA H200",
            "bf16",
            "causal_half",
            "llama",
        )
        + ("8", "2", "1", "4", "1", "1"): 1
    }
    names = (
        "running",
        "start_timestamp_seconds",
        "target_iterations",
        "device_peak_flops_per_second",
        "device_memory_bytes",
    )
    assert alone(values, *names) == [1, START_S, 100, 1e14, 141e9]
    assert values["iterations_total"] == {("trained",): 0, ("update_skipped",): 0, ("data_skipped",): 0}
    assert alone(values, "samples_total", "tokens_total", "model_flops_total", "iteration_seconds_total") == [
        0,
        0,
        0,
        0,
    ]
    assert (values["mfu_ratio"], values["energy_joules_total"], values["end_info"]) == ({}, {}, {})


def test_steps_are_counted() -> None:
    values = values_after(
        make_step(1, warmup=1, iteration_ns=400 * MS),
        make_step(2, eval_ns=500 * MS, checkpoint_ns=250 * MS),
        make_step(3, outcome=1, samples=0, tokens=0, skipped_samples=8, model_flops=0),
        make_skipped_data(7, 4),
    )
    assert values["iterations_total"] == {("trained",): 2, ("update_skipped",): 1, ("data_skipped",): 4}
    assert alone(values, "samples_total", "tokens_total", "skipped_samples_total", "model_flops_total") == [
        16,
        2048,
        40,
        8e12,
    ]
    assert alone(
        values, "iteration_seconds_total", "evaluation_seconds_total", "checkpoint_seconds_total"
    ) == [0.604, 0.5, 0.25]
    assert alone(values, "monitor_seconds_total", "last_iteration", "allocator_retries_total") == [
        60e-6,
        7,
        0,
    ]
    # the last record starts at 7 x 100 ms and takes 4 ms
    assert alone(values, "last_iteration_timestamp_seconds") == [START_S + 0.704]


def test_a_sum_with_a_hole_in_it_is_no_sum() -> None:
    values = values_after(make_step(1), make_step(2, model_flops=None), make_step(3))
    assert values["model_flops_total"] == {}
    assert alone(values, "tokens_total") == [3072]


def test_an_interval_in_base_units() -> None:
    phases = {"phases_ns": {"forward": 300 * MS, "backward": None}, "bubble_ns": 100 * MS}
    values = values_after(
        make_interval(10, throttle="power, idle", dropped=3, iteration_max_ns=150 * MS, **phases)
    )
    assert alone(values, "iteration_mean_seconds", "iteration_p95_seconds", "iteration_max_seconds") == [
        0.1,
        0.1,
        0.15,
    ]
    assert alone(values, "model_flops_per_second", "device_model_flops_per_second") == [40e12, 5e12]
    assert alone(values, "samples_per_second", "tokens_per_second", "mfu_ratio", "hfu_ratio") == [
        80,
        10240,
        0.05,
        0.0625,
    ]
    assert alone(values, "memory_allocated_bytes", "memory_peak_bytes", "memory_reserved_bytes") == [
        2e9,
        3e9,
        4e9,
    ]
    assert alone(values, "power_watts", "temperature_celsius", "sm_clock_hertz", "energy_joules_total") == [
        640,
        60,
        1.98e9,
        640,
    ]
    assert values["clock_capped"] == {
        ("power",): 1,
        ("temperature",): 0,
        ("power brake",): 0,
        ("hardware slowdown",): 0,
    }
    assert (values["phase_seconds"], alone(values, "bubble_ratio", "dropped_records_total")) == (
        {("forward",): 0.03},
        [0.1, 3],
    )


def test_what_the_next_interval_does_not_know_is_gone_and_what_is_suspect_is_not_shown() -> None:
    unknown = ("memory_bytes", "energy_mj", "power_mw", "throttle", "sm_clock_mhz")
    values = values_after(make_interval(10), make_interval(20, model_flops=10**15, **dict.fromkeys(unknown)))
    for name in (
        "mfu_ratio",
        "hfu_ratio",
        "memory_allocated_bytes",
        "power_watts",
        "clock_capped",
        "sm_clock_hertz",
    ):
        assert values[name] == {}, name
    assert alone(values, "energy_joules_total", "model_flops_per_second") == [640, 1e15]


def test_events_are_counted_by_kinds_that_are_bounded() -> None:
    values = values_after(make_event("slow"), make_event("slow"), make_event("brand new"), make_event("}\n"))
    assert {labels[0]: value for labels, value in values["events_total"].items() if value} == {
        "slow": 2,
        "other": 2,
    }


def test_ranks_side_by_side_are_three_series() -> None:
    work_ns: list[int | None] = [80 * MS, None, 90 * MS, 70 * MS, 120 * MS]
    nothing: list[int | None] = [None] * 5
    values = values_after(RanksRecord(1, 10, 1, nothing, work_ns, nothing, nothing, nothing, [1], 1))
    assert values["ranks_work_seconds"] == {("lowest",): 0.07, ("median",): 0.08, ("highest",): 0.12}
    assert alone(values, "silent_ranks") == [1]


def test_stragglers_come_and_go() -> None:
    first, second = make_straggler(), make_straggler(ranks=[4, 5], excess_ns=30 * MS)
    both = values_after(first, second)
    assert alone(both, "stragglers", "straggler_excess_seconds") == [3, 0.03]
    over = values_after(
        first, second, make_straggler(ranks=[4, 5], is_over=True), make_straggler(is_over=True)
    )
    assert (alone(over, "stragglers"), over["straggler_excess_seconds"]) == ([0], {})


def test_the_end_is_told() -> None:
    values = values_after(RunEnd("exception Evil\n{}", START_S * SECOND, 25, 7))
    assert (alone(values, "running", "dropped_records_total"), values["end_info"]) == (
        [0, 7],
        {("exception Evil\\x0a{}",): 1},
    )


def test_hostile_and_missing_facts_are_bounded_texts() -> None:
    values = values_after(
        header=make_header(
            facts=make_facts(script="x" * 1000, model_family=None, device="\x1b]0;\n", train_iters=None)
        )
    )
    ((labels, _),) = values["run_info"].items()
    facts = dict(zip(RUN_LABELS, labels, strict=True))
    assert (facts["script"], facts["model_family"], facts["device"]) == ("x" * 128, "", "\\x1b]0;\\x0a")
    assert values["target_iterations"] == {}


def test_names_follow_the_conventions() -> None:
    for name, metric in TABLE.items():
        assert metric.help.endswith("."), name
        assert not any(word in name for word in ("_ms", "_ns", "_gb", "percent", "_mhz", "tflop")), name
