"""Lines for scripts that watch a training."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from flagscale_perf.spine.records import EventRecord, Record
from flagscale_perf.training.rank_records import StragglerRecord
from flagscale_perf.training.ranks.late import straggler_text
from flagscale_perf.training.slowdown import SlowdownWatch
from flagscale_perf.training.summary.findings_file import FindingsSink
from tests.fakes import make_context, make_header, make_interval, make_step

SLOW = StragglerRecord(
    first_iteration=5,
    iteration=24,
    is_over=False,
    ranks=[1],
    hostname="node0",
    device="H200",
    stage=0,
    phase="forward_backward_other",
    excess_ns=80_000_000,
    iteration_ns=320_000_000,
    against="peers",
    cause=None,
)
TEXT = (
    "steps 5 to 24 took 33 % longer: rank 1 (node0, H200) takes 80 ms longer in forward_backward_other "
    "than its peers"
)


def lines_of(directory: Path, *records: Record) -> list[dict[str, Any]]:
    sink = FindingsSink.open(make_context(make_header(), directory, print))
    for record in records:
        sink.write(record)
    sink.flush()
    sink.close()
    path = directory / "findings.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_slow_rank_has_a_line_when_it_begins_and_when_it_ends(tmp_path: Path) -> None:
    header = make_header()
    step = make_step(24, start_ns=header.start_mono_ns + 2_000_000_000, iteration_ns=1_000_000_000)
    same = EventRecord("slow", 0, 24, straggler_text(SLOW))
    over = replace(SLOW, is_over=True, iteration=60)
    begins, ends = lines_of(tmp_path, step, SLOW, same, over)
    assert begins == {
        "session_id": "20240129_103000",
        "unix_s": header.start_wall_ns / 1e9 + 3,
        "finding": "straggler",
        "state": "begins",
        "iteration": 24,
        "first_iteration": 5,
        "ranks": [1],
        "hostname": "node0",
        "phase": "forward_backward_other",
        "excess_ms": 80.0,
        "iteration_ms": 320.0,
        "cause": None,
        "observed": None,
        "text": TEXT,
    }
    assert (ends["state"], ends["iteration"], ends["ranks"]) == ("ends", 60, [1])


def test_what_is_remarked_on_has_a_line_and_a_note_none(tmp_path: Path) -> None:
    header = make_header()
    said = [EventRecord(name, header.start_mono_ns, 7, "text") for name in ("standstill", "note", "memory")]
    assert [(line["finding"], line["text"]) for line in lines_of(tmp_path, *said)] == [
        ("standstill", "text"),
        ("memory", "text"),
    ]


def test_steps_that_take_longer_have_a_line_when_it_begins_and_when_it_ends(tmp_path: Path) -> None:
    watch, events = SlowdownWatch(), []
    for n in range(1, 200):
        mean_ms = 100 + n % 3 + 20 * (50 < n <= 120)
        text = watch.add(make_interval(10 * n, iteration_ns=10_000_000 * mean_ms))
        events += [] if text is None else [EventRecord("slow", 0, 10 * n, text)]
    begins, ends = lines_of(tmp_path, *events)
    assert begins["text"] == "a step takes 20 % longer since about iteration 501 (101.0 to 121.0 ms)"
    assert (begins["finding"], begins["state"]) == ("slowdown", "begins")
    assert ends["text"] == "steps are back to 101.0 ms since about iteration 1201"
    assert (ends["finding"], ends["state"]) == ("slowdown", "ends")


def test_without_a_finding_there_is_no_file_and_sessions_share_one(tmp_path: Path) -> None:
    assert lines_of(tmp_path, make_step(1)) == []
    assert not list(tmp_path.iterdir())
    lines_of(tmp_path, SLOW)
    assert len(lines_of(tmp_path, SLOW)) == 2
