"""Curves for TensorBoard, written without torch and without TensorFlow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from flagscale_perf.sinks.base import SinkContext
from flagscale_perf.sinks.tensorboard_layout import layout_summary
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.spine.files import AppendFile, open_new
from flagscale_perf.training.hardware import mean_power_w, tokens_per_joule
from flagscale_perf.training.memory import fragmentation
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rates import as_gb, mean_ms, rates_of
from flagscale_perf.training.records import IntervalRecord, Record
from flagscale_perf.training.utilisation import Scale, Utilisation

RUN_NAME = "flagscale_perf"  # stands as a run of its own next to the host's


def scalars_of(interval: IntervalRecord, scale: Scale) -> dict[str, float | None]:
    """Tag to value; None where a value is not known, or is suspect: a curve has no room to say so."""
    rates = rates_of(interval, scale)
    mfu, hfu = Utilisation(None, None) if rates.utilisation.is_suspect else rates.utilisation
    return {
        "performance/tflops_per_gpu": rates.tflops_per_gpu,
        "performance/tflops_total": rates.tflops,
        "performance/samples_per_second": rates.samples_per_s,
        "performance/tokens_per_second": rates.tokens_per_s,
        "performance/mfu": mfu,
        "performance/hfu": hfu,
        "memory/current_gb": as_gb(interval.memory_bytes),
        "memory/peak_gb": as_gb(interval.memory_peak_bytes),
        "memory/reserved_gb": as_gb(interval.memory_reserved_bytes),
        "memory/fragmentation": fragmentation(interval.memory_bytes, interval.memory_reserved_bytes),
        "memory/alloc_retries": interval.memory_retries,
        "hardware/power_w": mean_power_w(interval),
        "hardware/temperature_c": interval.temperature_c,
        "hardware/sm_clock_mhz": interval.sm_clock_mhz,
        "hardware/tokens_per_joule": tokens_per_joule(interval, scale),
        "time/iteration_ms": rates.iteration_ms,
        "time/train_step_ms": mean_ms(interval.train_step_ns, interval.steps),
        "time/device_ms": mean_ms(interval.device_ns, interval.steps),
        "time/eval_ms": interval.eval_ns / NS_PER_MS,
        "time/checkpoint_ms": interval.checkpoint_ns / NS_PER_MS,
        "training/skipped_iterations": float(interval.skipped_iterations),
    } | _phases_of(interval)


def _phases_of(interval: IntervalRecord) -> dict[str, float | None]:
    phases_ns = (interval.phases_ns or dict.fromkeys(PHASES)) | {
        "bubble": interval.bubble_ns,
        "imbalance": interval.imbalance_ns,
    }
    return {f"phase/{name}_ms": mean_ms(dur_ns, interval.steps) for name, dur_ns in phases_ns.items()}


class TensorBoardSink:
    """An event file in `<the host's directory>/flagscale_perf`, or in `<log directory>/tensorboard` where the
    host has none.
    """

    name: ClassVar[str] = "TensorBoard"
    cost: ClassVar[str] = "no curves of the monitor in TensorBoard; everything else goes on"
    rebuilds: ClassVar[bool] = False

    def __init__(self, context: SinkContext) -> None:
        """Raises ImportError without the package tensorboard."""
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        self._scale = Scale.of(context.header.facts)
        self._preamble = _Bytes()
        start_s = context.header.start_wall_ns / NS_PER_S
        for start in (
            self._event(wall_time=start_s, file_version="brain.Event:2"),
            self._event(wall_time=start_s, summary=layout_summary()),
        ):
            RecordWriter(self._preamble).write(start.SerializeToString())
        hosts = context.header.facts.get("tensorboard_dir")
        directory = Path(hosts) / RUN_NAME if hosts else context.directory / "tensorboard"
        seconds = context.header.start_wall_ns // NS_PER_S
        host = os.uname().nodename.replace("/", "_")  # whoever names a machine does not choose the directory
        self._stem = directory / f"events.out.tfevents.{seconds:010d}.{host}.{os.getpid()}"
        self._file = AppendFile(self._numbered(0), open_new, lambda fresh: self._preamble.content)
        self._writer = RecordWriter(self._file)

    @classmethod
    def open(cls, context: SinkContext) -> TensorBoardSink:
        """Asked for wherever the package is installed."""
        return cls(context)

    def write(self, record: Record) -> None:
        """One event with all known values of an interval."""
        if isinstance(record, IntervalRecord):
            scalars = scalars_of(record, self._scale)
            values = [
                self._summary.Value(tag=tag, simple_value=value)
                for tag, value in scalars.items()
                if value is not None
            ]
            event = self._event(
                wall_time=record.end_wall_ns / NS_PER_S,
                step=record.iteration,
                summary=self._summary(value=values),
            )
            self._writer.write(event.SerializeToString())

    def flush(self) -> None:
        """Brings the events to the file. Raises OSError."""
        while True:
            try:
                return self._file.flush()
            except FileExistsError:  # another container's process of the same name, number and second
                self._file.path = self._numbered(int(self._file.path.suffix[1:]) + 1)

    def close(self) -> None:
        """Gives the descriptor back."""
        self._file.close()

    def _numbered(self, number: int) -> Path:
        return self._stem.with_name(f"{self._stem.name}.{number}")


class _Bytes:
    """What a record writer needs of a file, in memory."""

    def __init__(self) -> None:
        self.content = b""

    def write(self, data: bytes) -> None:
        self.content += data
