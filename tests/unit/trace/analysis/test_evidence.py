"""What puts and gets say of the clocks of their machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.analysis import instrument
from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine import files
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.store import kept
from flagscale_perf.trace.analysis.evidence import bounds_of
from flagscale_perf.trace.records import OperationRecord
from tests.trace_runs import MS, SECOND, START_WALL_NS, Job, make_trace_header

AHEAD_NS, ROWS, STEPS = 3 * SECOND, 8, 20


def two_machines(directory: Path, **changed: Any) -> None:
    """Each step the first machine puts what the second gets 1 ms after it is there, and back."""
    one, other = Job(), Job()
    actor, trainer = one.process("actor", 11), other.process("trainer", 12)
    for step in range(STEPS):
        rows, at_ns = range(step * ROWS, (step + 1) * ROWS), step * SECOND
        there_ns = at_ns + 100 * MS
        one.put(actor, at_ns, rows, names=["prompt"], **changed)
        other.get(trainer, at_ns + AHEAD_NS, rows, names=["prompt"])
        other.put(trainer, there_ns + AHEAD_NS, rows, names=["advantage"])
        one.get(actor, there_ns + 4 * MS, rows, names=["advantage"])
    # its time of day is a second early: by that its clock is 4 s ahead
    early = {"start_wall_ns": START_WALL_NS - SECOND, "start_mono_ns": 3 * SECOND}
    headers = [
        make_trace_header("20240129_103002"),
        make_trace_header("20240129_103001", host="node1", boot_id="b", **early),
    ]
    for header, job in zip(headers, (one, other), strict=True):
        path = directory / f"perf_records_{header.session_id}.jsonl"
        path.write_bytes(b"".join(map(encode, [header, *job.records])))


def test_marks_of_both_machines_are_on_one_clock_by_what_was_put_and_got(tmp_path: Path) -> None:
    two_machines(tmp_path)
    session = open_session(tmp_path)
    starts: dict[int, list[int]] = {}
    for record in session:
        if isinstance(record, OperationRecord):
            starts.setdefault(record.process, []).append(record.start_ns)
    one, other = starts.values()
    off_ns = max(abs(got - put) for put, got in zip(one[::2], other[::2], strict=True))
    uncertainty_ns = session.uncertainty_ns(1, 2, 0)
    assert uncertainty_ns is not None
    assert off_ns <= uncertainty_ns < 10 * MS
    assert (session.uncertainty_ns(1, 1, 0), session.uncertainty_ns(2, 2, 0)) == (0, 0)
    (line,) = session.reading.remarks[:1]
    assert line.startswith("clock of node1: +2.99") and line.endswith("(40 messages both ways)")


@pytest.mark.parametrize("changed", [{"weight_milli": 2000}, {"names": ["other"]}])
def test_what_was_not_recorded_whole_or_not_got_is_no_evidence(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    if "names" in changed:
        two_machines(tmp_path)
        found = open_session(tmp_path).files[:1]
    else:
        two_machines(tmp_path, **changed)
        found = open_session(tmp_path).files
    assert [bound for bound in bounds_of([Session([file]) for file in found]) if bound.clock != "b"] == []


def test_what_was_found_in_long_files_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_machines(tmp_path)
    monkeypatch.setattr(kept, "MIN_BYTES", 1)
    monkeypatch.setattr(kept, "_BYTES_A_VALUE", 1)
    monkeypatch.setattr(files, "TICK_NS", 0)  # by which it is known that they have not been changed since
    first = open_session(tmp_path).clocks.lines()
    monkeypatch.setattr(instrument, "load", lambda name: pytest.fail("the files are read again"))
    assert open_session(tmp_path).clocks.lines() == first
