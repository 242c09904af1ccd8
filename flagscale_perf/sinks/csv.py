"""A table of the intervals, for spreadsheets and dataframes."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any, ClassVar

from flagscale_perf.sinks.base import SinkContext
from flagscale_perf.spine.files import AppendFile, open_shared
from flagscale_perf.spine.session import Labels, intervals_name
from flagscale_perf.training.hardware import mean_power_w
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rates import mean_ms, rates_of
from flagscale_perf.training.records import IntervalRecord, Record
from flagscale_perf.training.utilisation import Scale

FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r", "\n")


class CsvSink:
    """`perf_intervals_<session>.csv`, a row an interval; asked for by `perf_csv`. A cell is empty where a
    value is not known.
    """

    name: ClassVar[str] = "CSV"
    cost: ClassVar[str] = "no new rows in it; the run file has them all"
    rebuilds: ClassVar[bool] = False

    def __init__(self, context: SinkContext) -> None:
        self._labels = Labels(context.header)
        self._scale = Scale.of(context.header.facts)
        path = context.directory / intervals_name(context.header.session_id)
        self._file = AppendFile(path, open_shared, lambda fresh: _row(COLUMNS) if fresh else b"")

    @classmethod
    def open(cls, context: SinkContext) -> CsvSink | None:
        """Only with the option."""
        return cls(context) if context.header.config.get("perf_csv") else None

    def write(self, record: Record) -> None:
        """Keeps an interval's row."""
        if isinstance(record, IntervalRecord):
            self._file.write(_row(self._cells(record)))

    def flush(self) -> None:
        """Brings the rows to the file. Raises OSError."""
        self._file.flush()

    def close(self) -> None:
        """Gives the descriptor back."""
        self._file.close()

    def _cells(self, interval: IntervalRecord) -> list[Any]:
        rates = rates_of(interval, self._scale)
        phases_ns = interval.phases_ns or {}
        parts_ns = [*(phases_ns.get(phase) for phase in PHASES), interval.bubble_ns, interval.imbalance_ns]
        return [
            self._labels.at(interval.end_wall_ns).isoformat(sep=" "),
            *(
                interval.first_iteration,
                interval.iteration,
                interval.steps,
                interval.skipped_iterations,
                int(interval.warmup_only),
            ),
            *(
                rates.iteration_ms,
                _ms(interval.iteration_p50_ns),
                _ms(interval.iteration_p95_ns),
                _ms(interval.iteration_max_ns),
            ),
            *(mean_ms(interval.train_step_ns, interval.steps), mean_ms(interval.device_ns, interval.steps)),
            *(_ms(interval.eval_ns), _ms(interval.checkpoint_ns), mean_ms(interval.self_ns, interval.steps)),
            *(
                interval.samples,
                interval.tokens,
                interval.skipped_samples,
                rates.samples_per_s,
                rates.tokens_per_s,
            ),
            *(rates.tflops_per_gpu, rates.tflops, *rates.utilisation, int(rates.utilisation.is_suspect)),
            *(
                interval.memory_bytes,
                interval.memory_peak_bytes,
                interval.memory_reserved_bytes,
                interval.memory_retries,
            ),
            *(mean_power_w(interval), interval.sm_clock_mhz, interval.temperature_c, interval.throttle),
            *(mean_ms(part_ns, interval.steps) for part_ns in parts_ns),
        ]


COLUMNS = (
    *("timestamp", "first_iteration", "iteration", "steps", "skipped_iterations", "warmup_only"),
    *("iteration_ms", "iteration_p50_ms", "iteration_p95_ms", "iteration_max_ms", "train_step_ms", "device_ms"),
    *("eval_ms", "checkpoint_ms", "self_ms", "samples", "tokens", "skipped_samples", "samples_per_s", "tokens_per_s"),
    *("tflops_per_gpu", "tflops", "mfu", "hfu", "suspect"),
    *("memory_bytes", "memory_peak_bytes", "memory_reserved_bytes", "memory_retries"),
    *("power_w", "sm_clock_mhz", "temperature_c", "throttle"),
    *(f"{part}_ms" for part in (*PHASES, "bubble", "imbalance")),
)  # fmt: skip


def _row(cells: Sequence[Any]) -> bytes:
    """One line; a text that a spreadsheet would take for a formula begins with an apostrophe."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([_harmless(cell) for cell in cells])
    return line.getvalue().encode()


def _harmless(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_BEGINS) else cell


def _ms(dur_ns: int | None) -> float | None:
    return mean_ms(dur_ns, 1)
