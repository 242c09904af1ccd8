"""The `analysis.Instrument` of calls: what the commands that read run files call."""

from __future__ import annotations

from collections.abc import Iterator

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.instrument import Instrument
from flagscale_perf.analysis.laid import Laid
from flagscale_perf.analysis.session import Session
from flagscale_perf.rpc.analysis import blocks, compare, report
from flagscale_perf.rpc.analysis.changeable import ChangeableCalls
from flagscale_perf.rpc.analysis.evidence import bounds_of
from flagscale_perf.rpc.analysis.findings import judge
from flagscale_perf.rpc.analysis.live import LiveCalls
from flagscale_perf.rpc.analysis.report import CallsReport
from flagscale_perf.rpc.analysis.timeline import timeline
from flagscale_perf.rpc.dtypes import DType
from flagscale_perf.rpc.figures import method_name
from flagscale_perf.rpc.records import CallRecord, ServedRecord, Status
from flagscale_perf.store.tables import Tables, words_of


def read_calls(session: Session) -> CallsReport:
    """The report of a session or a log, with findings. Raises PerfError if it cannot be read."""
    return judge(report.read_calls(session))


def _report(session: Session) -> Report:
    return blocks.report_of(read_calls(session))


def _laid(session: Session) -> Iterator[Laid]:
    for call in session.records(CallRecord):
        yield Laid(f"calls of {method_name(call.method)}", call.start_ns, call.start_ns + call.total_ns)


INSTRUMENT = Instrument(
    leads=1,
    report=_report,
    timeline=timeline,
    compare=compare.compare,
    live=LiveCalls,
    laid=_laid,
    evidence=bounds_of,
    replayable=ChangeableCalls,
    what="a session of calls",
    tables=Tables(
        views={"calls": "select * from records.rpc_call"},
        words={
            CallRecord: {"status": words_of(Status), "dtype": words_of(DType)},
            ServedRecord: {"status": words_of(Status)},
        },
    ),
)
