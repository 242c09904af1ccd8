"""A live finding: what scripts get of it, and how the log says each kind."""

from __future__ import annotations

from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.live import FINDINGS, FindingRecord


def test_scripts_get_one_flat_object() -> None:
    found = FindingRecord(
        "hang",
        "begins",
        "rank 3 waits",
        70.0,
        "s",
        "rank 3",
        {"ranks": [3]},
        at_ns=4_000_000_000,
        iteration=9,
    )
    assert found.told("20240129_103000", Anchor(1_000_000_000_000, 1_000_000_000)) == {
        "session_id": "20240129_103000",
        "unix_s": 1003.0,
        "finding": "hang",
        "state": "begins",
        "iteration": 9,
        "severity": 70.0,
        "unit": "s",
        "ranks": [3],
        "text": "rank 3 waits",
    }
    assert found.identity == ("hang", "rank 3")


def test_the_name_of_every_event_fits_the_ring() -> None:
    assert all(len(said.event) <= 16 for said in FINDINGS.values())
