"""Curves for TensorBoard, written without torch and without TensorFlow."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, ClassVar

from flagscale_perf.sinks.base import FileSink, SinkContext
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.figures import Rows
from flagscale_perf.spine.files import AppendFile, open_new
from flagscale_perf.spine.records import Record

RUN_NAME = "flagscale_perf"  # stands as a run of its own next to the host's


class TensorBoardSink(FileSink):
    """An event file in `<the host's directory>/flagscale_perf`, else in `<log directory>/tensorboard`."""

    name: ClassVar[str] = "TensorBoard"
    cost: ClassVar[str] = "no curves of the monitor in TensorBoard; everything else goes on"

    def __init__(self, context: SinkContext) -> None:
        """Raises ImportError without the package tensorboard."""
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        self._rows = Rows(context.presentation.table, context.header)
        self._preamble = io.BytesIO()
        start_s = context.header.start_wall_ns / NS_PER_S
        begin: list[dict[str, Any]] = [{"file_version": "brain.Event:2"}]
        if not context.resumed:  # TensorBoard drops what an earlier session has from this step on
            step = (context.header.facts.get("resume_iteration") or 0) + 1
            status = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            begin.append({"session_log": status, "step": step})
        for each in begin:
            RecordWriter(self._preamble).write(self._event(wall_time=start_s, **each).SerializeToString())
        hosts = context.header.facts.get("tensorboard_dir")
        directory = Path(hosts) / RUN_NAME if hosts else context.directory / "tensorboard"
        seconds = context.header.start_wall_ns // NS_PER_S
        # A machine's name must not choose the directory.
        host = os.uname().nodename.replace("/", "_")
        self._stem = directory / f"events.out.tfevents.{seconds:010d}.{host}.{os.getpid()}"
        self._file = AppendFile(self._numbered(0), open_new, lambda fresh: self._preamble.getvalue())
        self._writer = RecordWriter(self._file)

    def write(self, record: Record) -> None:
        """One event with all known values of a row."""
        if self._rows.is_row(record):
            table, curves = self._rows.table, self._rows.curves(record)
            values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in curves.items()]
            event = self._event(
                wall_time=getattr(record, table.time) / NS_PER_S,
                step=getattr(record, table.step),
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

    def _numbered(self, number: int) -> Path:
        return self._stem.with_name(f"{self._stem.name}.{number}")
