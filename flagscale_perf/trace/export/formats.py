"""The formats to which a run of this instrument can be exported, and where spans can be sent."""

from __future__ import annotations

from collections.abc import Iterator

from flagscale_perf.analysis.export import Export
from flagscale_perf.analysis.run_file import RunFile
from flagscale_perf.trace.export.ecs import ecs_lines
from flagscale_perf.trace.export.spans import spans_of
from flagscale_perf.trace.export.zipkin import zipkin_lines


def _otlp(run: RunFile) -> Iterator[str]:
    from flagscale_perf.trace.export.otlp import otlp_lines  # needs OpenTelemetry

    return otlp_lines(run.header, spans_of(run))


def _send(run: RunFile, endpoint: str) -> int:
    from flagscale_perf.trace.export.otlp import send

    return send(run.header, spans_of(run), endpoint)


EXPORTS = {
    "otlp": Export(
        _otlp, "ndjson", "OpenTelemetry's protocol: lines for a collector's otlpjsonfile receiver", _send
    ),
    "zipkin": Export(lambda run: zipkin_lines(run.header, spans_of(run)), "json", "POST it to /api/v2/spans"),
    "ecs": Export(
        lambda run: ecs_lines(run.header, spans_of(run)), "ndjson", "Elastic Common Schema, for Filebeat"
    ),
}
