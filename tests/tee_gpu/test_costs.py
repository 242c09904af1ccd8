"""Costs by size, and what is predicted from them: figures a reader can work out."""

from __future__ import annotations

import pytest
from diagnosis.costs import Curve, Load, Prediction, Traffic

from tests.tee_gpu.calibrations import FIXED, MIB


def test_a_curve_is_straight_between_measured_sizes_and_goes_on_beyond_them() -> None:
    curve = Curve.through({1000: 50.0, 3000: 90.0, 5000: 230.0})
    assert [curve.at(size) for size in (0, 1000, 2000, 3000, 4000, 5000, 6000)] == [
        50,
        50,
        70,
        90,
        160,
        230,
        300,
    ]
    assert curve.fixed_ns == 50.0
    assert curve.bytes_per_s == pytest.approx(4000 / 180 * 1e9)


def test_a_larger_message_is_never_cheaper() -> None:
    assert Curve.through({10: 5.0, 30: 4.0, 20: 9.0}).points == ((10, 5.0), (20, 9.0), (30, 9.0))


def test_one_size_or_equal_times_give_no_bandwidth() -> None:
    assert Curve.through({10: 5.0}).at(1000) == 5.0
    assert Curve.through({10: 5.0}).bytes_per_s is None
    assert Curve.through({10: 5.0, 20: 5.0}).bytes_per_s is None


def test_traffic_of_calls_is_grouped_by_size() -> None:
    traffic = Traffic.of([(10, 20), (30, 5), (10, 20)])
    assert traffic.loads == (Load(2, 10, 20), Load(1, 30, 5))
    assert (traffic.calls, traffic.sent_bytes, traffic.received_bytes, traffic.largest_bytes) == (
        3,
        50,
        45,
        30,
    )


def test_traffic_of_totals_is_of_equal_calls() -> None:
    traffic = Traffic.alike(4, 100, 50)
    assert traffic.loads == (Load(4, 25, 12.5),)
    assert Traffic.alike(0, 0, 0).calls == 0


def test_a_prediction_is_a_round_trip_a_call_and_so_much_a_byte() -> None:
    msgpack = FIXED.path("msgpack", "IPC")
    assert msgpack is not None
    made = msgpack.predict(Traffic.alike(10, 20 * MIB, 30 * MIB))
    # 10 x 30 us; 50 MiB x 4 ns, of it 1.5 to serialize and 1 to deserialize
    assert made == Prediction(300_000 + 200 * MIB, 300_000, 75 * MIB, 50 * MIB)


def test_what_was_not_measured_is_none() -> None:
    assert FIXED.path("frames", "TCP") is None
