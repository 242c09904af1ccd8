"""What every sink knows of its session."""

from __future__ import annotations

from flagscale_perf.arguments import PerfConfig
from tests.fakes import make_context, make_header


def test_options_are_read_back_from_the_header(tmp_path) -> None:
    header = make_header(perf_csv=True, perf_prometheus_port="9400")
    options = make_context(header, tmp_path, print).options
    assert options == PerfConfig.of(header.config)
    assert (options.perf_csv, options.perf_prometheus_port, options.perf_wandb) == (True, "9400", False)
