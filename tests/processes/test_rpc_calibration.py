"""What calls cost is measured with real processes, and what is predicted from it is near what happens."""

from __future__ import annotations

import pytest

from flagscale_perf.rpc.calibration import WAYS, Plan, calibrate, connected
from flagscale_perf.rpc.costs import Traffic
from flagscale_perf.rpc.errors import PeerGone
from flagscale_perf.rpc.partner import start

KIB, MIB = 1024, 1024 * 1024


def test_every_way_is_measured_at_every_size() -> None:
    found = calibrate(Plan((KIB, 64 * KIB), rounds=1))
    names = [path.name for path in found.paths]
    assert names == [way.name for way in WAYS if way.name in names]
    assert {"msgpack over ipc", "msgpack over tcp", "frames over ipc", "frames over tcp"} <= set(names)
    for path in found.paths:
        assert path.round_trip_ns > 0
        for curve in (path.there, path.back, path.serialize, path.deserialize):
            assert [size for size, _ in curve.points] == [KIB, 64 * KIB]
    assert found.memory.warm.at(64 * KIB) > 0


def test_a_plan_measures_up_to_the_largest_message_that_is_asked_for() -> None:
    assert Plan.up_to(5 * MIB).sizes == (KIB, 64 * KIB, MIB, 5 * MIB)
    assert Plan.up_to(0).sizes == (KIB,)


@pytest.mark.alone
def test_a_replay_takes_about_what_was_predicted() -> None:
    """Within a factor of 3 here, on a machine that may be busy; benchmarks/bench_rpc.py shows how near."""
    calls = [(MIB, 64 * KIB), (64 * KIB, MIB), (KIB, KIB)] * 10
    plan = Plan((KIB, 64 * KIB, MIB), rounds=3, ways=WAYS[:3])
    found = calibrate(plan)
    with connected(plan) as lines:
        source = memoryview(bytearray(MIB))
        for line, path in zip(lines, found.paths, strict=True):
            line.replay(source, calls)
            took = min(line.replay(source, calls) for _ in range(3))
            predicted = path.predict(Traffic.of(calls)).total_ns
            assert took / 3 < predicted < took * 3, path.name


def test_a_partner_that_cannot_start_is_said() -> None:
    ended = pytest.raises(PeerGone, match="the process to measure with ended with exit code 1")
    with ended, start("baseline", "ipc:///nonexistent/x.ipc", KIB):
        pass
