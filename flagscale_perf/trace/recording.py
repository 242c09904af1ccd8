"""The `Instrument` of traced processes; run as a module, it is the job's writer process on this machine."""

from __future__ import annotations

from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.trace.records import (
    CallRecord,
    ClearRecord,
    FieldsRecord,
    KeysRecord,
    OperationRecord,
    RowsRecord,
    StartRecord,
    UnitsRecord,
    UnsizedRecord,
    VersionsRecord,
    WaitRecord,
)
from flagscale_perf.trace.summary import PRESENTATION
from flagscale_perf.writer.process import serve_job
from flagscale_perf.writer.processes import ProcessesPipeline


class TracePipeline(ProcessesPipeline):
    """Passes on calls and operations."""

    name = "trace"
    presentation = PRESENTATION
    numbered = (OperationRecord, CallRecord)
    recorded = (
        *(*numbered, StartRecord, NameRecord, WaitRecord),
        *(RowsRecord, ClearRecord, FieldsRecord, UnitsRecord, UnsizedRecord, KeysRecord),
        VersionsRecord,
    )
    things = "calls and operations"
    period_s = 0.1  # so that `tail -f` shows a call within 0.5 s


if __name__ == "__main__":
    serve_job(TracePipeline)
