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

OF_ROW = ("ranks", "phase", "pattern")


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
    rows = [row for ledger in ledgers for row in ledger["rows"]]
    costly = [
        each
        for each in report["findings"]
        if each["gain_of"] == "tokens/s" and each["name"] not in BESIDE and each["cost_of_steps"] is not None
    ]
    return [_said(each, step_ms, _row_of(each, rows)) for each in costly]


def _row_of(found: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The row of a ledger that a finding is made of; empty where it is of none."""
    for row in rows:
        is_late = row["kind"] == "late" and all(row[name] == found[name] for name in OF_ROW)
        if is_late or (row["kind"].replace(" ", "_") == found["name"] and row["least_ms"] is not None):
            return row
    return {}


def _said(found: Mapping[str, Any], step_ms: float, row: Mapping[str, Any]) -> dict[str, Any]:
    """As an answer has it. Without a row, the upper end of an interval is the cost."""
    ranks, cause, cost_ms = found["ranks"], found.get("cause"), found["cost_of_steps"] * step_ms
    said = {
        "rank": ranks[0] if len(ranks) == 1 else None,
        "phase": found["phase"],
        "cause": cause if cause in ("work", "speed") else None,
        "cost_ms": cost_ms,
    }
    if row.get("more_work_ms") is not None and row["step_ms"]:
        said["work_share"] = min(1.0, max(0.0, row["more_work_ms"] / row["step_ms"]))
    gain = found["least_gain"]
    least_ms = row.get("least_ms", None if gain is None else gain / (1 + gain) * step_ms)
    if least_ms is None:
        return said
    most_ms = row.get("most_ms", cost_ms)
    return said | {"cost_least_ms": min(least_ms, cost_ms), "cost_most_ms": max(most_ms, cost_ms)}
