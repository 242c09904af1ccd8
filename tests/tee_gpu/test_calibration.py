"""What calls cost is measured with real processes, and what is predicted from it is near what happens."""

from __future__ import annotations

from statistics import median

import pytest
from diagnosis.calibration import LEAST_BYTES, MOST_BYTES, WAYS, Way, _connected, _measured, calibrate
from diagnosis.observed import Load
from diagnosis.partner import pages, start
from tensor_rpc.errors import PeerGone

KIB, MIB = 1024, 1024 * 1024


def test_every_way_is_measured() -> None:
    found = calibrate([Load(3, 3 * KIB, 6 * MIB), Load(1, 0, 0)], rounds=1)
    assert (found.rounds, found.message_bytes) == (1, 2 * MIB)
    assert [Way(path.name, path.transport, path.payload) for path in found.paths] == [*WAYS]
    for path in found.paths:
        assert path.calls_ns >= 4 * path.round_trip_ns > 0


def test_a_path_that_was_not_measured_is_none() -> None:
    assert calibrate([Load(1, 1, 1)], rounds=1).path("shared", "TCP") is None


def test_small_messages_are_measured_as_one_that_shows_a_speed() -> None:
    assert calibrate([Load(1, 1, 1)], rounds=1).message_bytes == LEAST_BYTES


def test_what_a_huge_message_takes_follows_from_a_smaller_one() -> None:
    assert _measured(Load(2, 8 * MOST_BYTES, 2 * MOST_BYTES)) == ((MOST_BYTES, MOST_BYTES // 4), 4.0)
    assert _measured(Load(2, 200, 100)) == ((100, 50), 1.0)


def test_a_replay_takes_about_what_was_predicted() -> None:
    """Within a factor of 4 here, by the median call of each size, which a busy machine disturbs as it does
    those that are measured.
    """
    loads = [Load(10, 10 * MIB, 640 * KIB), Load(10, 640 * KIB, 10 * MIB), Load(10, 10 * KIB, 10 * KIB)]
    assert any(_is_near(loads) for _ in range(5))


def _is_near(loads: list[Load]) -> bool:
    found, source = calibrate(loads, rounds=3), pages(MIB)
    with _connected(2 * MIB) as lines:
        for line in lines:
            for load in loads * 10:
                line.measure(source, load.each)
        took = [sum(10 * median(t[0] for t in line.rounds[load.each]) for load in loads) for line in lines]
    return all(t / 4 < path.calls_ns < t * 4 for t, path in zip(took, found.paths, strict=True))


def test_a_partner_that_cannot_start_is_said() -> None:
    ended = pytest.raises(PeerGone, match="the process to measure with ended with exit code 1")
    with ended, start("ipc:///nonexistent/x.ipc", KIB):
        pass
