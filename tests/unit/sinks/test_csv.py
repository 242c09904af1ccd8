"""The table, read back as a table."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas

from flagscale_perf.sinks.csv import CsvSink
from flagscale_perf.training.figures import TABLE
from flagscale_perf.training.phases import PHASES
from tests.fakes import MS, make_context, make_header, make_interval

KNOWN = {
    "timestamp": "2024-01-29 10:30:15",
    "elapsed_s": "15.0",
    "first_iteration": "1",
    "iteration": "10",
    "steps": "10",
    "skipped_iterations": "0",
    "warmup_only": "0",
    "iteration_ms": "100.0",
    "iteration_p50_ms": "100.0",
    "iteration_p95_ms": "100.0",
    "iteration_max_ms": "100.0",
    "train_step_ms": "90.0",
    "device_ms": "80.0",
    "eval_ms": "0.0",
    "checkpoint_ms": "0.0",
    "self_ms": "0.02",
    "samples": "80",
    "tokens": "10240",
    "skipped_samples": "0",
    "samples_per_s": "80.0",
    "tokens_per_s": "10240.0",
    "tflops_per_gpu": "5.0",
    "tflops": "40.0",
    "mfu": "0.05",
    "hfu": "0.0625",
    "mfu_by_counter": "0.05",
    "suspect": "0",
    "memory_gb": "2.0",
    "memory_peak_gb": "3.0",
    "memory_reserved_gb": "4.0",
    "fragmentation": "0.5",
    "alloc_retries": "0",
    "tokens_per_joule": "2.0",
    "power_w": "640.0",
    "sm_clock_mhz": "1980",
    "temperature_c": "60",
    "throttle": "",
    "loss": "2.5",
    "grad_norm": "1.25",
    "learning_rate": "0.0001",
    "forward_ms": "30.0",
    "bubble_ms": "4.0",
}


def rows_of(directory: Path) -> list[dict[str, str]]:
    (path,) = directory.glob("perf_intervals_*.csv")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def written(directory: Path, *intervals, resumed: bool = False) -> list[dict[str, str]]:
    sink = CsvSink.open(make_context(make_header(perf_csv=True), directory, print, resumed=resumed))
    assert sink is not None
    for interval in intervals:
        sink.write(interval)
    sink.flush()
    sink.close()
    return rows_of(directory)


def test_every_cell_of_an_interval(tmp_path: Path) -> None:
    phases_ns = dict.fromkeys(PHASES) | {"forward": 300 * MS}
    (row,) = written(tmp_path, make_interval(10, phases_ns=phases_ns, bubble_ns=40 * MS))
    assert row == dict.fromkeys(TABLE.csv_keys(), "") | KNOWN


def test_a_second_writer_goes_on_below_the_first_heading(tmp_path: Path) -> None:
    written(tmp_path, make_interval(10))
    rows = written(tmp_path, make_interval(20), resumed=True)
    assert [row["iteration"] for row in rows] == ["10", "20"]


def test_no_text_is_a_formula_and_numbers_stay_numbers(tmp_path: Path) -> None:
    phases_ns = dict.fromkeys(PHASES) | {"between_steps": -10 * MS}
    (row,) = written(tmp_path, make_interval(10, throttle='=HYPERLINK("x","y")\n', phases_ns=phases_ns))
    assert (row["throttle"], row["between_steps_ms"]) == ('\'=HYPERLINK("x","y")\\x0a', "-1.0")


def test_pandas_reads_it(tmp_path: Path) -> None:
    written(tmp_path, make_interval(10), make_interval(20, model_flops=None))
    (path,) = tmp_path.glob("perf_intervals_*.csv")
    table = pandas.read_csv(path)
    assert table["tflops"].fillna(-1).tolist() == [40.0, -1.0]
    assert table["tokens"].sum() == 20480
