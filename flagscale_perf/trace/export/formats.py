"""The formats to which a run of this instrument can be exported, and where spans can be sent."""

from __future__ import annotations

from collections.abc import Iterator

from flagscale_perf.analysis.export import Export
from flagscale_perf.analysis.job import Job
from flagscale_perf.trace.export.ecs import ecs_lines
from flagscale_perf.trace.export.spans import spans_of
from flagscale_perf.trace.export.zipkin import zipkin_lines


def _otlp(job: Job) -> Iterator[str]:
    from flagscale_perf.trace.export.otlp import otlp_lines  # needs OpenTelemetry

    return otlp_lines(spans_of(job))


def _send(job: Job, endpoint: str) -> int:
    from flagscale_perf.trace.export.otlp import send

    return send(spans_of(job), endpoint)


EXPORTS = {
    "otlp": Export(
        _otlp, "ndjson", "OpenTelemetry's protocol: lines for a collector's otlpjsonfile receiver", _send
    ),
    "zipkin": Export(lambda job: zipkin_lines(spans_of(job)), "json", "POST it to /api/v2/spans"),
    "ecs": Export(lambda job: ecs_lines(spans_of(job)), "ndjson", "Elastic Common Schema, for Filebeat"),
}
