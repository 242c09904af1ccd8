"""What collectives and messages say of the clocks of two machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.analysis.job import open_session
from tests.profile_runs import MS, Profiled, make_profile_header

AHEAD_MS, COUNT = 3000, 20
MESSAGE = {"op": "gloo:send", "call": "c10d::send", "group": "PIPELINE 0-1", "size_bytes": 1000}


def written(directory: Path, **changed: Any) -> None:
    """Rank 0 on one machine, rank 1 on the other; they take turns in coming last, by up to 20 ms."""
    for rank in (0, 1):
        job = Profiled()
        process = job.rank(rank)
        step = job.step(process, AHEAD_MS * rank, 4000, 70, 6, 7, 3, 12, 2, iteration=20).number
        for number in range(COUNT):
            late_ms = number % 10 * 2 if (number % 2 == 0) == (rank == 0) else 0
            at_ms = AHEAD_MS * rank + 100 * number + late_ms
            one = {"step": step, "ordinal": number, "sequence": number + 1} | changed
            if "peer" in one:
                one |= {
                    "peer": 1 - rank,
                    "is_send": int((number % 2 == 0) == (rank == 0)),
                    "ordinal": number // 2,
                }
            job.collective(process, at_ms, 22 - late_ms, **one)
        job.window(process)
        header = make_profile_header(f"20240129_10300{1 - rank}", host=f"node{rank}", boot_id=f"b{rank}")
        job.write(directory, header)


@pytest.mark.parametrize(
    ("changed", "known"),
    [
        ({}, True),
        ({"sequence": None, "peer": 0} | MESSAGE, True),
        ({"call": "c10d::broadcast_", "op": "gloo:broadcast"}, False),
    ],
)
def test_the_planted_offset_is_within_the_interval(
    changed: dict[str, Any], known: bool, tmp_path: Path
) -> None:
    written(tmp_path, **changed)
    session = open_session(tmp_path)
    (line,) = session.clocks.lines()
    if not known:
        assert line == "clock of node1: +0.000 s +- unknown, wall clock (no message between it and node0)"
        return
    move, uncertainty_ns = session.clocks.mover("b1"), session.clocks.uncertainty_ns("b1", AHEAD_MS * MS)
    assert move is not None and uncertainty_ns is not None
    assert abs(move(AHEAD_MS * MS)) <= uncertainty_ns < 25 * MS
    assert line.startswith("clock of node1: +") and "messages both ways" in line
