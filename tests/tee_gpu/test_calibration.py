"""What calls cost is measured with real processes, and what is predicted from it is near what happens."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

import pytest
from diagnosis.calibration import WAYS, Line, Plan, calibrate, connected
from diagnosis.costs import Traffic
from diagnosis.partner import start
from tensor_rpc.errors import PeerGone

KIB, MIB = 1024, 1024 * 1024


def test_every_way_is_measured_at_every_size() -> None:
    found = calibrate(Plan((KIB, 64 * KIB, MIB, 2 * MIB), rounds=1))
    assert [path.name for path in found.paths] == [way.name for way in WAYS]
    for path in found.paths:
        assert path.round_trip_ns > 0
        for curve in (path.there, path.back, path.serialize, path.deserialize):
            assert [size for size, _ in curve.points] == [KIB, 64 * KIB, MIB, 2 * MIB]


def test_a_plan_measures_up_to_the_largest_message_that_is_asked_for() -> None:
    sizes = (KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 2 * MIB, 4 * MIB, 5 * MIB)
    assert Plan.up_to(5 * MIB).sizes == sizes
    assert Plan.up_to(0).sizes == (KIB,)


def test_a_replay_takes_about_what_was_predicted() -> None:
    """Within a factor of 4 here, by the median call of each size, which a busy machine disturbs as it does
    those that are measured.
    """
    calls = [(MIB, 64 * KIB), (64 * KIB, MIB), (KIB, KIB)] * 10
    plan = Plan((KIB, 64 * KIB, MIB), rounds=3, ways=WAYS[:3])
    assert any(_is_near(plan, calls) for _ in range(5))


def _is_near(plan: Plan, calls: list[tuple[int, int]]) -> bool:
    found, source = calibrate(plan), memoryview(bytearray(MIB))
    with connected(plan) as lines:
        for line in lines:
            for sent, received in calls:
                line.exchange(source[:sent], received)
        took = [_usual_ns(line, source, calls) for line in lines]
    predicted = [path.predict(Traffic.of(calls)).total_ns for path in found.paths]
    return all(t / 4 < p < t * 4 for t, p in zip(took, predicted, strict=True))


def _usual_ns(line: Line, source: memoryview, calls: list[tuple[int, int]]) -> float:
    """Of all these calls, each taking as long as the median one of its size."""
    took: dict[tuple[int, int], list[int]] = defaultdict(list)
    for sent, received in calls:
        took[sent, received].append(line.exchange(source[:sent], received).total_ns)
    return sum(median(took[call]) for call in calls)


def test_a_partner_that_cannot_start_is_said() -> None:
    ended = pytest.raises(PeerGone, match="the process to measure with ended with exit code 1")
    with ended, start("ipc:///nonexistent/x.ipc", KIB):
        pass
