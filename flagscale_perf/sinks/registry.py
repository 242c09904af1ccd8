"""Every sink there is. A new one is its own file and one line here."""

from __future__ import annotations

from flagscale_perf.sinks.base import Sink
from flagscale_perf.sinks.console import ConsoleSink
from flagscale_perf.sinks.csv import CsvSink
from flagscale_perf.sinks.otlp import OtlpSink
from flagscale_perf.sinks.prometheus import PrometheusPortSink, PrometheusTextfileSink
from flagscale_perf.sinks.realtime import RealtimeSink
from flagscale_perf.sinks.run_file import RecordsSink
from flagscale_perf.sinks.summary import SummarySink
from flagscale_perf.sinks.tensorboard import TensorBoardSink
from flagscale_perf.sinks.text import MetricsSink
from flagscale_perf.sinks.wandb import WandbSink

# Everything the run file can be shown as, in the order of showing.
VIEWS: tuple[type[Sink], ...] = (
    *(MetricsSink, RealtimeSink, SummarySink, TensorBoardSink, ConsoleSink),
    *(PrometheusPortSink, PrometheusTextfileSink, CsvSink, WandbSink, OtlpSink),
)
SINKS: tuple[type[Sink], ...] = (RecordsSink, *VIEWS)
