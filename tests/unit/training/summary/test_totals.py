"""A run folded into its summary."""

from __future__ import annotations

import json

import pytest

from flagscale_perf.spine.records import RunEnd
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.summary.totals import MAX_FAILURES, MAX_ROWS, RunTotals
from tests.fakes import (
    MS,
    SECOND,
    make_event,
    make_facts,
    make_header,
    make_interval,
    make_phases,
    make_skipped_data,
    make_step,
    sample_run,
)
from tests.golden import golden


def totals_of(records, header=None):
    totals = RunTotals(header or make_header())
    for record in records:
        totals.add(record)
    return totals


def summary_of(records, header=None):
    return totals_of(records, header).result().as_dict()


def keys_of(value):
    return {key: keys_of(item) for key, item in value.items()} if isinstance(value, dict) else None


def test_a_whole_run() -> None:
    header, *records = sample_run()
    assert totals_of(records, header).text() == golden("perf_summary.json")


def test_the_promised_keys_are_where_they_were_promised() -> None:
    summary = json.loads(golden("perf_summary.json"))
    assert {
        "start_time": "20240129_103000",
        "end_time": "2024-01-29T10:30:03",
        "total_iterations": 25,
    }.items() <= summary["session_info"].items()
    promised = {
        "avg_tflops_per_gpu",
        "max_tflops_per_gpu",
        "min_tflops_per_gpu",
        "avg_throughput_tokens",
        "peak_memory_gb",
    }
    assert promised <= summary["final_statistics"].keys()
    columns = {
        "iteration",
        "timestamp",
        "TFLOPS_per_GPU",
        "TFLOPS",
        "samples_per_sec",
        "tokens_per_sec",
        "iteration_time_ms",
        "memory_gb",
    }
    assert all(columns <= row.keys() for row in summary["iteration_logs"])


def test_averages_are_totals_over_totals_without_the_warmup() -> None:
    steps = [
        make_step(1, warmup=1, iteration_ns=9 * SECOND),
        make_step(2, iteration_ns=100 * MS),
        make_step(3, iteration_ns=300 * MS),
    ]
    statistics = summary_of(steps)["final_statistics"]
    # 8 TFLOP, 16 samples, 2048 tokens in 0.4 s on 8 devices of 100 TFLOP/s
    assert statistics == {
        "avg_tflops_per_gpu": 2.5,
        "avg_tflops": 20.0,
        "max_tflops_per_gpu": None,
        "min_tflops_per_gpu": None,
        "avg_throughput_tokens": 5120.0,
        "avg_throughput_samples": 40.0,
        "avg_mfu": 0.025,
        "avg_hfu": 0.03125,
        "intervals": 0,
        "suspect_intervals": 0,
        "peak_memory_gb": 3.0,
        "avg_iteration_ms": 200.0,
        "p50_iteration_ms": 100.0,
        "p95_iteration_ms": 300.0,
        "min_iteration_ms": 100.0,
        "max_iteration_ms": 300.0,
        "first_iteration_ms": 9000.0,
        "self_cost_share": 1e-4,
        "avg_tflops_total": 20.0,
        "avg_step_time_ms": 200.0,
        "min_step_time_ms": 100.0,
        "max_step_time_ms": 300.0,
    }


def test_phases_are_totals_and_shares_without_the_warmup() -> None:
    header = make_header(facts=make_facts(pipeline_parallel=2, pipeline_schedule="1f1b"))
    records = [make_phases(1), make_step(1, warmup=1), make_phases(2), make_step(2), make_step(3)]
    records += [make_phases(4, backward_ns=None, pipeline_recv_wait_ns=51 * MS), make_step(4, microbatches=4)]
    summary = summary_of(records, header)
    seconds = {
        "data_loading": 0.004,
        "forward": 0.036,
        "backward": 0.036,
        "pipeline_recv_wait": 0.066,
        "pipeline_send": 0.002,
    }
    seconds |= {
        "exposed_grad_comm": 0.006,
        "optimizer": 0.002,
        "optimizer_inner_step": 0.008,
        "forward_backward_other": 0.008,
    }
    seconds |= {"other": 0.012, "between_steps": 0.02}
    assert summary["phases"] == {
        "steps": 2,
        "total_s": dict.fromkeys(PHASES) | seconds,
        "share": pytest.approx(
            dict.fromkeys(PHASES) | {phase: value / 0.2 for phase, value in seconds.items()}
        ),
    }
    # 2: 56 ms of computing for 2 micro-batches, so 28 ms, of which 15 ms were waited; 4: 20 ms for 4, so 5 ms
    # of 51 ms
    assert summary["bubble"] == pytest.approx(
        {
            "bubble_s": 0.020,
            "imbalance_s": 0.046,
            "bubble_share": 0.1,
            "imbalance_share": 0.23,
            "bubble_share_of_pipeline": 20 / (76 + 66),
        }
    )


def test_totals_count_the_warmup_too_and_passed_over_data_as_skipped() -> None:
    summary = summary_of(
        [
            make_step(51, warmup=1, eval_ns=SECOND),
            make_skipped_data(54, 3),
            make_step(55, checkpoint_ns=2 * SECOND),
        ]
    )
    assert summary["totals"] == {
        "train_steps": 2,
        "skipped_iterations": 3,
        "samples": 16,
        "tokens": 2048,
        "skipped_samples": 24,
        "model_flops": 8 * 10**12,
        "hardware_flops": 10 * 10**12,
        "train_s": 0.2,
        "eval_s": 1.0,
        "checkpoint_s": 2.0,
    }
    info = summary["session_info"]
    assert (
        info["total_iterations"],
        info["first_iteration"],
        info["last_iteration"],
        info["end_reason"],
    ) == (5, 51, 55, "running")


def test_the_extremes_are_those_of_intervals_that_are_not_warmup() -> None:
    intervals = [
        make_interval(1, warmup_only=True, model_flops=1),
        make_interval(10),
        make_interval(20, model_flops=80 * 10**12),
    ]
    statistics = summary_of(intervals)["final_statistics"]
    assert (statistics["min_tflops_per_gpu"], statistics["max_tflops_per_gpu"]) == (5.0, 10.0)


def test_an_interval_above_the_peak_is_marked_counted_and_in_no_average() -> None:
    # 100 ms on 8 devices of 100 TFLOP/s: 80 TFLOP are all they can do
    good, bad = (
        make_step(1, hardware_flops=8 * 10**12),
        make_step(2, model_flops=100 * 10**12, hardware_flops=120 * 10**12),
    )
    intervals = [
        make_interval(
            step.iteration,
            iteration_ns=100 * MS,
            model_flops=step.model_flops,
            hardware_flops=step.hardware_flops,
        )
        for step in (good, bad)
    ]
    summary = summary_of([good, intervals[0], bad, intervals[1]])
    statistics = summary["final_statistics"]
    assert (statistics["avg_mfu"], statistics["avg_hfu"], statistics["suspect_intervals"]) == (0.05, 0.1, 1)
    assert [(row["mfu"], row["hfu"], row["suspect"]) for row in summary["iteration_logs"]] == [
        (0.05, 0.1, False),
        (1.25, 1.5, True),
    ]
    assert statistics["avg_tflops_per_gpu"] == 65.0


def test_a_warmup_interval_is_no_part_of_the_average_shares() -> None:
    warmup = make_step(1, warmup=1, model_flops=100 * 10**12)
    records = [
        warmup,
        make_interval(1, warmup_only=True, iteration_ns=100 * MS, model_flops=100 * 10**12),
        make_step(2),
        make_interval(2),
    ]
    statistics = summary_of(records)["final_statistics"]
    assert (statistics["avg_mfu"], statistics["avg_hfu"], statistics["suspect_intervals"]) == (
        0.05,
        0.0625,
        1,
    )


def test_the_set_of_fields_never_varies() -> None:
    empty = summary_of(
        [], make_header(facts=make_facts(world_size=None, peak_flop_per_s=float("nan"), model=None))
    )
    full = json.loads(golden("perf_summary.json"))
    full["run_facts"]["model"] = None
    assert keys_of(empty) == keys_of(full)
    assert empty["final_statistics"]["avg_tflops_per_gpu"] is None
    assert (empty["session_info"]["first_iteration"], empty["run_facts"]["peak_flop_per_s"]) == (None, None)


@pytest.mark.parametrize(("log_format", "logs"), [("text", {"metrics", "realtime"}), ("json", {"summary"})])
def test_files_that_the_log_format_leaves_out_are_not_named(log_format: str, logs: set[str]) -> None:
    named = summary_of([], make_header(perf_log_format=log_format))["files"]
    assert named.keys() == {"records", *logs}


def test_failures_are_listed_up_to_a_bound_and_all_counted() -> None:
    events = [make_event("failure", text=str(n)) for n in range(MAX_FAILURES + 5)] + [make_event("note")]
    summary = summary_of(events)
    assert (summary["failure_count"], len(summary["failures"])) == (MAX_FAILURES + 5, MAX_FAILURES)
    assert summary["failures"][0] == {"timestamp": "2024-01-29 10:30:01", "iteration": 0, "text": "0"}


def test_drops_are_the_last_known_count() -> None:
    assert summary_of([make_interval(10, dropped=3)])["dropped_records"] == 3
    assert summary_of([make_interval(10, dropped=3), RunEnd("killed", 0, 10, 5)])["dropped_records"] == 5


def test_a_summary_of_a_million_steps_stays_below_a_megabyte() -> None:
    totals = RunTotals(make_header())
    for number in range(1, 3 * MAX_ROWS + 1):
        totals.add(
            make_interval(number * 10, iteration_ns=1_234_567_891, device_ns=None, model_flops=10**20 + 7)
        )
    for number in range(MAX_FAILURES):
        totals.add(make_event("failure", text="\x1b" * 200, iteration=number))
    text = totals.text()
    assert MAX_ROWS // 2 < len(json.loads(text)["iteration_logs"]) <= MAX_ROWS
    assert len(text) < 1_000_000


def test_extreme_values_of_a_hostile_file_break_nothing() -> None:
    most, least = 2**63 - 1, -(2**63) + 1
    totals = RunTotals(make_header())
    for step in (
        make_step(2**100, start_ns=most, iteration_ns=most, eval_ns=most, checkpoint_ns=most, samples=2**126),
        make_step(-5, iteration_ns=1, model_flops=2**126, iterations=2**100),
        make_step(1, start_ns=least, iteration_ns=least, outcome=77, warmup=9),
    ):
        totals.add(step)
    assert json.loads(totals.text(), parse_constant=pytest.fail)["totals"]["train_steps"] == 3


def test_the_extremes_are_not_known_where_the_flops_of_an_interval_are_not() -> None:
    unknown = make_interval(20, model_flops=None, hardware_flops=None, mfu=None, hfu=None)
    statistics = summary_of([make_interval(10), unknown, make_interval(30)])["final_statistics"]
    assert (statistics["min_tflops_per_gpu"], statistics["max_tflops_per_gpu"]) == (None, None)
