"""The formats of other systems that a run of this instrument can be exported to."""

from __future__ import annotations

from collections.abc import Iterator

from flagscale_perf.analysis.instrument import Export
from flagscale_perf.analysis.session import Session
from flagscale_perf.trace.export.spans import spans_of


def _otlp(session: Session) -> Iterator[str]:
    from flagscale_perf.trace.export.otlp import otlp_lines  # needs OpenTelemetry

    return otlp_lines(spans_of(session))


EXPORTS = {
    "otlp": Export(
        _otlp, "ndjson", "OpenTelemetry's protocol: lines for a collector's otlpjsonfile receiver"
    ),
}
