"""What every sink knows of its session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.sinks.base import Sink
from flagscale_perf.sinks.console import ConsoleSink
from flagscale_perf.sinks.csv import CsvSink
from flagscale_perf.sinks.prometheus import PrometheusPortSink, PrometheusTextfileSink
from flagscale_perf.sinks.realtime import RealtimeSink
from flagscale_perf.sinks.registry import VIEWS
from flagscale_perf.sinks.summary import SummarySink
from flagscale_perf.sinks.tensorboard import TensorBoardSink
from flagscale_perf.sinks.text import MetricsSink
from flagscale_perf.sinks.wandb import WandbSink
from tests.fakes import make_context, make_header


def test_options_are_read_back_from_the_header(tmp_path) -> None:
    header = make_header(perf_csv=True, perf_prometheus_port="9400")
    options = make_context(header, tmp_path, print).options
    assert options == PerfConfig.of(header.config)
    assert (options.perf_csv, options.perf_prometheus_port, options.perf_wandb) == (True, "9400", False)


USUAL = [MetricsSink, RealtimeSink, SummarySink, TensorBoardSink]


@pytest.mark.parametrize(
    ("options", "opened"),
    [
        ({}, USUAL),
        ({"perf_log_format": "text"}, [MetricsSink, RealtimeSink, TensorBoardSink]),
        ({"perf_log_format": "json"}, [SummarySink, TensorBoardSink]),
        ({"perf_console_output": True}, [*USUAL, ConsoleSink]),
        ({"perf_csv": True}, [*USUAL, CsvSink]),
        ({"perf_wandb": True}, [*USUAL, WandbSink]),
        ({"perf_prometheus_port": "9400"}, [*USUAL, PrometheusPortSink]),
        ({"perf_prometheus_textfile": "x.prom"}, [*USUAL, PrometheusTextfileSink]),
    ],
)
def test_a_sink_is_there_where_its_option_asks_for_it(
    tmp_path: Path, options: dict[str, Any], opened: list[type[Sink]]
) -> None:
    context = make_context(make_header(**options), tmp_path, print, may_serve=True)
    assert {kind for kind in VIEWS if kind.open(context) is not None} == set(opened)
