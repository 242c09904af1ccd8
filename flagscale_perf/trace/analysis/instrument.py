"""The `analysis.Instrument` of queue traces: what the commands that read run files and logs call."""

from __future__ import annotations

from collections.abc import Iterator

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.instrument import Instrument, Spans
from flagscale_perf.analysis.laid import Laid
from flagscale_perf.analysis.session import Session
from flagscale_perf.store.tables import Tables, words_of
from flagscale_perf.trace.analysis import blocks, compare
from flagscale_perf.trace.analysis.changeable import ChangeableQueue
from flagscale_perf.trace.analysis.evidence import bounds_of
from flagscale_perf.trace.analysis.findings import judge
from flagscale_perf.trace.analysis.live import LiveTraces
from flagscale_perf.trace.analysis.report import TraceReport, report_of
from flagscale_perf.trace.analysis.sample import report_of_sample
from flagscale_perf.trace.analysis.source import read_traces
from flagscale_perf.trace.analysis.timeline import timeline
from flagscale_perf.trace.records import (
    KINDS,
    Begun,
    CallRecord,
    ClearRecord,
    KeysRecord,
    Kind,
    OperationRecord,
    StartRecord,
    WaitRecord,
)

TEXTS = {
    OperationRecord: ("partition", "error", "slowest_unit"),
    CallRecord: ("function", "error"),
    WaitRecord: ("partition", "error", "task"),
    ClearRecord: ("partition", "error"),
    StartRecord: ("partition", "function"),
    KeysRecord: ("partition",),
}


def read_report(session: Session) -> TraceReport:
    """The report of a session or of logs. Raises PerfError if it cannot be read."""
    return judge(report_of(read_traces(session)))


def _report(session: Session) -> Report:
    return blocks.report_of(read_report(session))


def _laid(session: Session) -> Iterator[Laid]:
    for one in session.records(OperationRecord):
        if one.operation in KINDS:
            name = f"{Kind(one.operation).name.lower()}s of the queue"
            yield Laid(name, one.start_ns, one.start_ns + one.total_ns)


INSTRUMENT = Instrument(
    leads=2,
    laid=_laid,
    report=_report,
    timeline=timeline,
    compare=compare.compare,
    live=LiveTraces,
    evidence=bounds_of,
    replayable=ChangeableQueue,
    tables=Tables(
        views={"operations": "select * from records.tq_operation"},
        words={OperationRecord: {"operation": words_of(Kind)}, StartRecord: {"begun": words_of(Begun)}},
        texts=TEXTS,
    ),
    spans=Spans(
        "tq",
        "transfer_queue",
        {"partition": "messaging.destination.name", "rows": "messaging.batch.message_count"},
        {
            kind: {"messaging.system": "transfer_queue", "messaging.operation.type": operation}
            for kind, operation in (("producer", "send"), ("consumer", "receive"))
        },
    ),
    sample=lambda session, asked: report_of_sample(read_traces(session), asked),
)
