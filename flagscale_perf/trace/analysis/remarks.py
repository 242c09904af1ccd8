"""Remarks that a reader must know before the figures: what is missing, and where it can be found."""

from __future__ import annotations

from collections.abc import Sequence

from flagscale_perf.trace.analysis.source import Traces

MOST = 5
WHERE_COMPLETE = "tq_trace_<pid>.log in TQ_TRACE_DIR, or worker-*-<pid>.out in the logs of Ray's session"


def remarks_of(traces: Traces) -> list[str]:
    """One sentence per remark."""
    losses, said = traces.losses, []
    if losses.repeated:
        complete = ", ".join(traces.complete[:MOST]) or WHERE_COMPLETE
        whose = f" (of process {_some(sorted(losses.lossy - {''}))})" if losses.lossy - {""} else ""
        said.append(
            f"{losses.repeated:,} lines lost: Ray left them out as repetitions{whose}; complete files:"
            f" {complete}. Set RAY_DEDUP_LOGS_ALLOW_REGEX='\\[TQ-' before the driver imports ray"
        )
    counted = (
        (losses.torn, "trace lines are torn and were left out"),
        (losses.unfinished, "calls began and have no end in it: still running, killed, or lost"),
        (losses.dropped, "records dropped: a ring was full"),
        (losses.lost, "calls and operations were made and did not come, by their numbers"),
        (losses.twice, "calls and operations were read twice: these logs repeat each other"),
    )
    said += [f"{count:,} {what}" for count, what in counted if count]
    return [*said, *_of_operations(traces), *losses.troubles, *dict.fromkeys(traces.events)]


def _of_operations(traces: Traces) -> list[str]:
    said = []
    if traces.losses.uncertain:
        said.append(f"gone before the writer found out what they had left: {_some(traces.losses.uncertain)}")
    if traces.unsized:
        fields = _some([name for name, _ in traces.unsized.most_common()])
        said.append(
            f"{traces.unsized_count:,} operations have fields whose bytes are not known ({fields}): lines and"
            " run file have the bytes of their other fields; MiB, MiB/s and what an operation costs are"
            " of the other operations"
        )
    if traces.again.total():
        units = _some([f"{unit} {count:,}" for unit, count in traces.again.most_common() if count])
        said.append(f"{traces.again.total():,} requests had no answer and were made again, by unit: {units}")
    if traces.unended:
        said.append(f"{len(traces.unended):,} began and did not end: {_some(traces.unended, '; ')}")
    return said


def _some(names: Sequence[str], between: str = ", ") -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return between.join(names[:MOST]) + more
