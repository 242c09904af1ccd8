"""Lines for scripts that watch a training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flagscale_perf.spine.live import FindingRecord
from flagscale_perf.spine.records import EventRecord, Record
from flagscale_perf.training.summary.findings_file import FindingsSink
from tests.fakes import make_context, make_header, make_step

SLOW = FindingRecord(
    "straggler",
    "begins",
    "steps 5 to 24 took 33 % longer: rank 1 (node0, H200) takes 80 ms longer in forward than its peers",
    80.0,
    "ms",
    "rank 1, forward",
    {"ranks": [1], "phase": "forward", "cause": None},
    at_ns=make_header().start_mono_ns + 3_000_000_000,
    iteration=24,
)


def lines_of(directory: Path, *records: Record) -> list[dict[str, Any]]:
    sink = FindingsSink.open(make_context(make_header(), directory, print))
    for record in records:
        sink.write(record)
    sink.flush()
    sink.close()
    path = directory / "findings.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_finding_is_one_flat_line_and_its_event_none(tmp_path: Path) -> None:
    (line,) = lines_of(tmp_path, make_step(24), SLOW, EventRecord("slow", 0, 24, SLOW.text))
    assert list(line.items()) == [
        ("session_id", "20240129_103000"),
        ("unix_s", make_header().start_wall_ns / 1e9 + 3),
        ("finding", "straggler"),
        ("state", "begins"),
        ("iteration", 24),
        ("severity", 80.0),
        ("unit", "ms"),
        ("ranks", [1]),
        ("phase", "forward"),
        ("cause", None),
        ("text", SLOW.text),
    ]


def test_without_a_finding_there_is_no_file_and_sessions_share_one(tmp_path: Path) -> None:
    assert lines_of(tmp_path, make_step(1)) == []
    assert not list(tmp_path.iterdir())
    lines_of(tmp_path, SLOW)
    assert len(lines_of(tmp_path, SLOW)) == 2
