"""What `flagscale-perf report --format json` says of a recorded run, as an answer."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flagscale_perf.analysis.job import open_session
from flagscale_perf.training.analysis.fold import read_report

# Said of a healthy run on such cores, too, and of no rank: steps are short and uneven, every pipeline has a
# bubble. As for the other tools, what only describes all ranks answers nothing.
BESIDE = ("jitter", "slow_start", "host_short_of_cpu", "startup", "pipeline_bubble")


def report_of(run: Path) -> dict[str, Any]:
    """The JSON report of a run's directory."""
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "perf_records_20260101_000000.jsonl"
        path.write_bytes(gzip.decompress((run / "perf.jsonl.gz").read_bytes()))
        report: dict[str, Any] = json.loads(
            json.dumps(read_report(open_session(path)).as_dict(), default=str)
        )
    return report


def answer(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Its findings that cost time in steps, in their order. A finding of several ranks names none of them."""
    ledgers = report["ledgers"]
    step_ms = ledgers[0]["step_ms"] if ledgers else report["figures"]["iteration_ms"]
    late = [row for ledger in ledgers for row in ledger["rows"] if row["kind"] == "late"]
    costly = [
        each for each in report["findings"] if each["gain_of"] == "tokens/s" and each["name"] not in BESIDE
    ]
    return [_said(each, step_ms, late) for each in costly if each["cost_of_steps"] is not None]


def _said(found: Mapping[str, Any], step_ms: float, late: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ranks, phase, cost_ms = found["ranks"], found["phase"], found["cost_of_steps"] * step_ms
    least_ms, most_ms = _interval(found, step_ms, late)
    cause = found.get("cause")
    said = {
        "rank": ranks[0] if len(ranks) == 1 else None,
        "phase": phase,
        "cause": cause if cause in ("work", "speed") else None,
        "cost_ms": cost_ms,
    }
    if least_ms is None:
        return said
    return said | {"cost_least_ms": min(least_ms, cost_ms), "cost_most_ms": max(most_ms or 0.0, cost_ms)}


def _interval(
    found: Mapping[str, Any], step_ms: float, late: Sequence[Mapping[str, Any]]
) -> tuple[float | None, float | None]:
    """Of a cost: the ledger's for a late rank, else the finding's own, whose upper end is its cost."""
    for row in late:
        if (row["ranks"], row["phase"], row["pattern"]) == (found["ranks"], found["phase"], found["pattern"]):
            return row["least_ms"], row["most_ms"]
    if (gain := found["least_gain"]) is None:
        return None, None
    return gain / (1 + gain) * step_ms, found["cost_of_steps"] * step_ms
