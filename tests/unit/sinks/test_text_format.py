"""The lines of the text log, byte for byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.sinks.text_format import TextFormat
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.training.figures import TABLE
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.records import IntervalRecord
from tests.fakes import (
    MS,
    SECOND,
    make_context,
    make_event,
    make_facts,
    make_header,
    make_interval,
    make_step,
    sample_intervals,
    sample_run,
)
from tests.golden import golden

HEADER = make_header(facts=make_facts(peak_flop_per_s=2.5e14))


def format_of(header) -> TextFormat:
    return TextFormat(make_context(header, Path("logs"), print))


def text_of(header, records) -> str:
    layout = format_of(header)
    return layout.heading() + "".join(map(layout.line, records))


def test_the_requirements_sample_comes_out_as_the_beginning_of_each_line() -> None:
    promised = golden("requirement_metrics.log").splitlines()
    lines = [line for line in text_of(HEADER, sample_intervals()).splitlines() if not line.startswith("# ")]
    assert [line[: len(sample)] for line, sample in zip(lines, promised, strict=True)] == promised


def test_the_whole_log() -> None:
    assert text_of(HEADER, sample_intervals()) == golden("perf_metrics.log")


def with_phases() -> list[IntervalRecord]:
    """The sample's two intervals; the first one has phases, of 2355.4 ms: every figure is a share of it."""
    first, second = sample_intervals()
    phases_ms = {
        "data_loading": 23.554,
        "forward": 706.62,
        "backward": 1177.7,
        "pipeline_recv_wait": 235.54,
        "pipeline_send": 23.554,
        "optimizer": 23.554,
        "optimizer_inner_step": 94.216,
        "forward_backward_other": 11.777,
        "other": 11.777,
        "between_steps": 47.108,
    }
    phases_ns = dict.fromkeys(PHASES) | {phase: round(value * MS) for phase, value in phases_ms.items()}
    bubble = {"bubble_ns": round(117.77 * MS), "imbalance_ns": round(117.77 * MS)}
    return [replace(first, phases_ns=phases_ns, **bubble), second]


def header_with(**config):
    return make_header(facts=make_facts(peak_flop_per_s=2.5e14), **config)


def test_the_whole_log_with_the_breakdown() -> None:
    assert text_of(header_with(perf_breakdown=True), with_phases()) == golden("perf_metrics_breakdown.log")


def test_the_whole_log_with_columns_of_ones_own() -> None:
    header = header_with(perf_columns="tokens_per_s,mfu,forward_ms,bubble_share", perf_breakdown=True)
    assert text_of(header, with_phases()) == golden("perf_metrics_columns.log")


@pytest.mark.parametrize("breakdown", [False, True])
def test_a_line_fits_160_characters(breakdown: bool) -> None:
    warmup = replace(with_phases()[0], warmup_only=True)
    heading, line = text_of(header_with(perf_breakdown=breakdown), [warmup]).splitlines()[3::3]
    assert line.endswith("  warm-up")
    assert max(len(heading), len(line)) <= 160


def titles(**config) -> list[str]:
    return format_of(header_with(**config)).heading().splitlines()[3].split()


def test_time_and_step_come_first_and_once() -> None:
    assert titles(perf_columns="mfu,iteration,timestamp,tflops") == ["Timestamp", "Step", "MFU(%)", "TFLOPS"]
    assert titles(perf_columns="iteration") == ["Timestamp", "Step"]


def test_every_figure_can_be_a_column() -> None:
    keys = [figure.key for figure in TABLE.figures]
    layout = format_of(header_with(perf_columns=",".join(keys)))
    shown = titles(perf_columns=",".join(keys))
    assert len(shown) == len(keys)  # the time is the one of the log
    for interval in (make_interval(10), make_interval(10, throttle=None)):
        assert layout.line(interval).startswith("2024-01-29 10:30:15  10       ")


def test_with_an_unknown_key_the_usual_columns_are_shown() -> None:
    assert titles(perf_columns="mfu,tflopps") == titles()


def test_a_log_with_everything_in_it() -> None:
    header, *records = sample_run()
    assert text_of(header, records) == golden("perf_metrics_events.log")


def line_of(record, header=HEADER) -> str:
    return format_of(header).line(record)


def test_what_is_not_known_is_a_dash() -> None:
    interval = make_interval(
        10,
        steps=0,
        iteration_ns=0,
        model_flops=None,
        device_ns=None,
        memory_bytes=None,
        memory_peak_bytes=None,
        skipped_iterations=10,
    )
    assert line_of(interval).split()[2:] == ["10", *"-" * 9, "10"]


def test_a_tiny_models_numbers_keep_three_digits() -> None:
    # 123,400,000 FLOP in 1 s on 8 devices
    assert line_of(make_interval(10, model_flops=123_400_000)).split()[3:5] == ["1.54e-05", "0.000123"]


def test_wide_values_keep_a_space_between_columns() -> None:
    cells = line_of(make_interval(1_234_567_890, model_flops=10**27, samples=10**13, tokens=10**15)).split()
    assert cells[2:7] == [
        "1234567890",
        "125000000000000.00",
        "1000000000000000.00",
        "10000000000000.0",
        "1000000000000000",
    ]


def test_a_share_above_100_percent_is_marked() -> None:
    # on 8 devices of 250 TFLOP/s, 2000 TFLOP are all they can do in a second
    cells = line_of(make_interval(10, model_flops=1500 * 10**12, hardware_flops=2084 * 10**12)).split()
    assert cells[10:] == ["75.0", "104.2!", "0"]
    assert line_of(make_interval(10, model_flops=2084 * 10**12, hardware_flops=2100 * 10**12)).split()[
        10:12
    ] == ["104.2!", "105.0!"]


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({}, "# FLOPs causal_half, bf16; peak of a device 100 TFLOP/s (a round number)"),
        (
            {"peak_flop_per_s": None, "peak_source": "no peak\nis known", "dtype": None},
            "# FLOPs causal_half, -; peak of a device - (no peak\\x0ais known)",
        ),
    ],
)
def test_the_heading_says_what_is_counted_and_against_which_peak(facts: dict[str, object], line: str) -> None:
    assert format_of(make_header(facts=make_facts(**facts))).heading().splitlines()[5:] == [line]


def test_a_warmup_is_marked_behind_the_columns() -> None:
    assert (
        line_of(make_interval(1, warmup_only=True))
        == line_of(make_interval(1)).rstrip().ljust(138) + "warm-up\n"
    )


def test_steps_and_headers_are_not_shown() -> None:
    assert (line_of(make_step(1)), line_of(HEADER)) == ("", "")


def test_events_and_the_end_are_comments_on_one_line() -> None:
    assert (
        line_of(make_event("failure", text="a\nb\x1b[2J"))
        == "# 2024-01-29 10:30:01 failure: a\\x0ab\\x1b[2J\n"
    )
    end = RunEnd("exception Value\nError", HEADER.start_wall_ns + 60 * SECOND, 7, 3)
    assert (
        line_of(end)
        == "# 2024-01-29 10:31:00 end: exception Value\\x0aError after iteration 7, 3 records lost\n"
    )


@pytest.mark.parametrize(
    ("resumed", "line"),
    [(0, "# session 20240129_103000\n"), (50, "# session 20240129_103000, resumed after iteration 50\n")],
)
def test_the_line_between_two_sessions(resumed: int, line: str) -> None:
    assert format_of(make_header(facts=make_facts(resume_iteration=resumed))).separator() == line
