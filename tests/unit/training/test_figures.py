"""Training's figures: every one of an interval, by numbers that a reader can work out by hand."""

from __future__ import annotations

import pytest

from flagscale_perf.spine.figures import Rows
from flagscale_perf.training.figures import FIGURES, TABLE
from flagscale_perf.training.phases import PHASES
from tests.fakes import MS, SECOND, make_facts, make_header, make_interval

# 40 TFLOP (50 with recomputation), 80 samples and 10240 tokens in 10 steps of 0.1 s
# on 8 devices of 100 TFLOP/s and 640 W
KNOWN = {
    "iteration": 10,
    "first_iteration": 1,
    "steps": 10,
    "timestamp": "2024-01-29 10:30:15",
    "elapsed_s": 15.0,
    "tflops_per_gpu": 5.0,
    "tflops": 40.0,
    "samples_per_s": 80.0,
    "tokens_per_s": 10240.0,
    "samples": 80,
    "tokens": 10240,
    "skipped_samples": 0,
    "iteration_ms": 100.0,
    "iteration_p50_ms": 100.0,
    "iteration_p95_ms": 100.0,
    "iteration_max_ms": 100.0,
    "memory_gb": 2.0,
    "memory_peak_gb": 3.0,
    "memory_reserved_gb": 4.0,
    "fragmentation": 0.5,
    "alloc_retries": 0,
    "power_w": 640.0,
    "tokens_per_joule": 2.0,
    "sm_clock_mhz": 1980,
    "temperature_c": 60,
    "throttle": "",
    "mfu": 0.05,
    "hfu": 0.0625,
    "mfu_by_counter": 0.05,
    "suspect": False,
    "loss": 2.5,
    "grad_norm": 1.25,
    "learning_rate": 1e-4,
    "skipped_iterations": 2,
    "train_step_ms": 90.0,
    "device_ms": 80.0,
    "eval_ms": 1500.0,
    "checkpoint_ms": 0.0,
    "self_ms": 0.02,
    "warmup_only": False,
    "run_delay_share": 0.25,
    "cpu_stall_share": 0.5,
    "memory_stall_share": 0.0,
    "io_stall_share": None,
    "host_memory_available_gb": 8.0,
    "disk_mb_per_s": 3.0,
    "network_mb_per_s": 0.5,
}
PHASES_KNOWN = {"forward_ms": 30.0, "backward_ms": 60.0, "bubble_ms": 4.0, "imbalance_ms": 1.0}
HOST = {
    "host_ns": 2 * SECOND,
    "run_delay_ns": SECOND // 2,
    "cpu_stall_ns": SECOND,
    "memory_stall_ns": 0,
    "memory_available_bytes": 8 * 10**9,
    "disk_bytes": 6 * 10**6,
    "network_bytes": 10**6,
}
ROWS = Rows(TABLE, make_header())


def csv_of(rows: Rows = ROWS, **overrides: object) -> dict[str, object]:
    return rows.csv(make_interval(10, **HOST | overrides))


def test_every_figure_of_an_interval() -> None:
    phases_ns = dict.fromkeys(PHASES) | {"forward": 300 * MS, "backward": 600 * MS}
    phases = {"phases_ns": phases_ns, "bubble_ns": 40 * MS, "imbalance_ns": 10 * MS}
    figures = csv_of(eval_ns=1500 * MS, skipped_iterations=2, **phases)
    assert figures == KNOWN | {f"{phase}_ms": None for phase in PHASES} | PHASES_KNOWN


def test_what_is_not_known_is_none_and_nothing_else_is() -> None:
    def missing(figures: dict[str, object]) -> set[str]:
        return {key for key, known in KNOWN.items() if figures[key] is None is not known}

    of_peak = {"mfu", "hfu", "mfu_by_counter"}
    assert missing(csv_of(model_flops=None)) == {
        "tflops_per_gpu",
        "tflops",
        "mfu",
        "mfu_by_counter",
    }
    assert missing(csv_of(Rows(TABLE, make_header(facts=make_facts(peak_flop_per_s=None))))) == of_peak
    nobody = Rows(TABLE, make_header(facts=make_facts(world_size=0)))
    assert missing(csv_of(nobody)) == of_peak | {"tflops_per_gpu", "tokens_per_joule"}
    rates = {"tflops_per_gpu", "tflops", "samples_per_s", "tokens_per_s", "tokens_per_joule", "iteration_ms"}
    means = {"train_step_ms", "device_ms", "self_ms"}
    assert missing(csv_of(steps=0, iteration_ns=0)) == of_peak | rates | means


def test_above_the_peak_no_share_is_a_point_of_a_curve() -> None:
    # 1000 TFLOP in 1 s are more than 8 devices of 100 TFLOP/s can do
    interval = make_interval(10, hardware_flops=10**15)
    curves = ROWS.curves(interval)
    assert ("performance/mfu" in curves, "performance/hfu" in curves) == (False, False)
    assert curves["performance/tflops_per_gpu"] == 5.0
    assert (ROWS.csv(interval)["suspect"], ROWS.csv(interval)["hfu"]) == (True, 1.25)


def test_the_groups_of_phases_are_shares_of_the_iteration() -> None:
    phases_ns = dict.fromkeys(PHASES) | {
        "pipeline_recv_wait": 100 * MS,
        "pipeline_send": 50 * MS,
        "forward": SECOND // 2,
    }
    interval = make_interval(10, phases_ns=phases_ns, bubble_ns=40 * MS)
    shares = {figure.key: ROWS.value(figure, interval) for figure in FIGURES if figure.key.endswith("_share")}
    assert shares == {
        "data_share": None,
        "forward_share": 0.5,
        "backward_share": None,
        "pipe_share": 0.15,
        "comm_share": None,
        "optim_share": None,
        "other_share": None,
        "between_share": None,
        "bubble_share": 0.04,
        "run_delay_share": None,
        "cpu_stall_share": None,
        "memory_stall_share": None,
        "io_stall_share": None,
    }


@pytest.mark.parametrize(("throttle", "value"), [(None, None), ("", False), ("idle, power", True)])
def test_why_the_clock_is_capped(throttle: str | None, value: bool | None) -> None:
    (figure,) = (each for each in FIGURES if each.key == "capped_by_power")
    assert ROWS.value(figure, make_interval(10, throttle=throttle)) == value


def test_names_are_given_once() -> None:
    keys = [figure.key for figure in FIGURES]
    tags = [figure.curve for figure in FIGURES if figure.curve]
    gauges = [(figure.gauge.name, figure.gauge.label) for figure in FIGURES if figure.gauge]
    summary = [figure.summary_key or figure.key for figure in FIGURES if figure.in_summary]
    assert all(len(names) == len(set(names)) for names in (keys, tags, gauges, summary))
    # what the requirement's own files name
    assert {"iteration", "TFLOPS_per_GPU", "tokens_per_sec"} <= set(summary)
    performance = {
        f"performance/{name}"
        for name in ("tflops_per_gpu", "tflops_total", "samples_per_second", "tokens_per_second")
    }
    assert performance | {"memory/current_gb", "memory/peak_gb"} <= set(tags)
