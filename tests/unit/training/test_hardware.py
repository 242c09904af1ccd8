"""Readings joined to stretches of training: energy from the counter, extremes, reasons; and what is not
believed.
"""

from __future__ import annotations

from dataclasses import asdict

import pytest

from flagscale_perf.training.columns import Intervals
from flagscale_perf.training.hardware import (
    MAX_WAITING,
    HardwareTotals,
    HardwareWindow,
    Stretch,
    mean_power_mw,
    mfu_by_counter,
    tokens_per_joule,
)
from flagscale_perf.training.utilisation import Scale
from tests.fakes import MS, SCALE, SECOND, make_interval, make_reading

NOTHING = Stretch(None, None, None, None, None, None)
UNREAD = dict.fromkeys(Stretch._fields)


def add(totals, interval):
    """One interval as the writer has it."""
    totals.add_intervals(Intervals.of([interval]))


def stretches(*parts):
    """Each part: start, end and the readings made until then."""
    window, closed = HardwareWindow(), []
    for start_ns, end_ns, *readings in parts:
        for reading in readings:
            window.add(reading)
        window.advance(start_ns, end_ns)
        closed.append(window.close())
    return closed


def test_a_stretch_has_the_energy_since_the_last_reading_before_it() -> None:
    first = [
        make_reading(0),
        make_reading(SECOND),
        make_reading(2 * SECOND, power_mw=660_000, sm_clock_mhz=1500, throttle="power"),
    ]
    second = [make_reading(4 * SECOND, temperature_c=71, throttle="idle, temperature")]
    assert stretches((0, 3 * SECOND, *first), (3 * SECOND, 5 * SECOND, *second)) == [
        Stretch(1_280_000, 2 * SECOND, 653_333, 1500, 60, "power"),
        Stretch(1_280_000, 2 * SECOND, 650_000, 1980, 71, "idle, temperature"),
    ]


def test_what_was_read_before_training_only_starts_the_energy() -> None:
    readings = [make_reading(0, power_mw=90_000, temperature_c=30), make_reading(2 * SECOND)]
    assert stretches((SECOND, 2 * SECOND, *readings)) == [
        Stretch(1_280_000, 2 * SECOND, 650_000, 1980, 60, "")
    ]


def test_a_stretch_without_a_reading_knows_nothing_and_the_next_one_has_the_energy_of_both() -> None:
    parts = [
        (0, SECOND, make_reading(0)),
        (SECOND, 2 * SECOND),
        (2 * SECOND, 3 * SECOND, make_reading(3 * SECOND)),
    ]
    first, second, third = stretches(*parts)
    assert (first.energy_mj, second, (third.energy_mj, third.energy_ns)) == (
        None,
        NOTHING,
        (1_920_000, 3 * SECOND),
    )


@pytest.mark.parametrize(
    "counter",
    [10, 10**6 + 3, 10**12, None],
    ids=["begun anew", "in joules", "in microjoules", "gone"],
)
def test_a_counter_that_cannot_be_true_gives_no_energy(counter: int | None) -> None:
    (stretch,) = stretches((0, SECOND, make_reading(0), make_reading(SECOND, energy_mj=counter)))
    assert (stretch.energy_mj, stretch.energy_ns, stretch.power_mw) == (None, None, 650_000)


def test_unknown_values_leave_the_known_ones_alone() -> None:
    nothing = dict.fromkeys(["power_mw", "energy_mj", "sm_clock_mhz", "temperature_c", "throttle"])
    readings = [make_reading(MS), make_reading(2 * MS, **nothing)]
    assert stretches((0, SECOND, *readings)) == [Stretch(None, None, 650_000, 1980, 60, "")]


def test_readings_do_not_pile_up_while_a_step_hangs() -> None:
    window = HardwareWindow()
    for second in range(2 * MAX_WAITING):
        window.add(make_reading(second * SECOND))
    window.advance(0, 2 * MAX_WAITING * SECOND)
    assert window.close().energy_ns == (MAX_WAITING - 1) * SECOND


def test_tokens_per_joule_are_one_devices_share() -> None:
    # 10240 tokens in 1 s on 8 devices, rank 0's draws 640 W
    assert tokens_per_joule(make_interval(10), Scale(8, None)) == 2.0
    assert tokens_per_joule(make_interval(10), Scale(None, None)) is None
    assert mean_power_mw(make_interval(10, energy_mj=None, energy_ns=None)) == 650_000
    assert tokens_per_joule(make_interval(10, **UNREAD), Scale(8, None)) is None


def test_the_run_adds_up_its_intervals() -> None:
    totals = HardwareTotals(Scale(10, None))
    add(totals, make_interval(10, throttle="power", sm_clock_mhz=1700))
    add(totals, make_interval(20, **UNREAD))
    add(totals, make_interval(30, energy_mj=320_000, energy_ns=SECOND, temperature_c=77, throttle="made up"))
    for xid in (0, 79, 0):
        totals.add_reading(make_reading(SECOND, xid=xid, pcie_width=8))
    # 960 J in 2 s are 480 W; 20,480 tokens of the two intervals on 10 devices are 1024 a second each
    assert asdict(totals.result()) == {
        "energy_j": 960.0,
        "energy_read_s": 2.0,
        "power_w": 480.0,
        "tokens_per_joule": pytest.approx(1024 / 480),
        "joules_per_token": pytest.approx(480 / 1024),
        "min_sm_clock_mhz": 1700,
        "max_temperature_c": 77,
        "throttle": ["power"],
        "ecc_uncorrected": 0,
        "xid_readings": 1,
        "pcie_generation": 5,
        "pcie_width": 8,
        "pcie_replays": 0,
        "nvlinks_active": 18,
        "mfu_by_counter": None,
        "mfu_by_formula": None,
        "counter_read_s": 1.8,
        "max_processes": 1,
    }


def test_nothing_read_is_nothing_known() -> None:
    totals = HardwareTotals(Scale(8, None))
    add(totals, make_interval(10, **UNREAD))
    assert set(asdict(totals.result()).values()) == {None}


def test_tokens_of_intervals_whose_power_was_not_read_are_in_no_efficiency() -> None:
    totals = HardwareTotals(Scale(8, None))
    add(totals, make_interval(10))
    add(totals, make_interval(20, tokens=90_000, **UNREAD))
    assert totals.result().tokens_per_joule == tokens_per_joule(make_interval(10), Scale(8, None))


def counted(at_ms: int, dur_ms: int = 1000, **overrides):
    """A reading whose tensor cores were active for a quarter of the time before it."""
    return make_reading(at_ms * MS, sm_clock_mhz=1000, tensor_ppm=250_000, tensor_ns=dur_ms * MS, **overrides)


def cycles(*steps, readings):
    """What a stretch of these steps has counted; each is a start, an end and the next one's start."""
    window = HardwareWindow()
    for reading in readings:
        window.add(reading)
    for start_ms, end_ms, next_ms in steps:
        window.advance(steps[0][0] * MS, next_ms * MS, (start_ms * MS, end_ms * MS))
    stretch = window.close()
    return stretch.tensor_cycles, stretch.tensor_ns


def test_cycles_are_the_active_part_of_the_time_at_the_clocks_of_both_its_ends() -> None:
    readings = [counted(1000), counted(2000), counted(3000)]
    assert cycles((0, 3000, 3000), readings=readings) == (750_000_000, 3 * SECOND)
    slower = make_reading(2000 * MS, sm_clock_mhz=500, tensor_ppm=250_000, tensor_ns=SECOND)
    assert cycles((0, 2000, 2000), readings=[counted(1000), slower]) == (
        250_000_000 + 187_500_000,
        2 * SECOND,
    )


def test_a_reading_that_began_in_the_stretch_before_counts_where_it_ends() -> None:
    window = HardwareWindow()
    for reading in (counted(1500, 1500), counted(2500)):
        window.add(reading)
    window.advance(0, 2 * SECOND, (0, 2 * SECOND))
    assert window.close().tensor_ns == 1500 * MS
    window.advance(2 * SECOND, 4 * SECOND, (2 * SECOND, 4 * SECOND))
    assert window.close().tensor_ns == SECOND


@pytest.mark.parametrize(
    ("steps", "readings"),
    [
        pytest.param([(1000, 4000, 4000)], [counted(1500)], id="from before training"),
        pytest.param([(0, 2000, 3000)], [counted(2500)], id="ends in an evaluation"),
        pytest.param([(0, 2000, 3000), (3000, 5000, 5000)], [counted(3500)], id="begins in an evaluation"),
        pytest.param([(0, 2000, 2000), (2500, 5000, 5000)], [counted(3000)], id="over a step that is lost"),
        pytest.param([(0, 4000, 4000)], [counted(2000, processes=2)], id="of two processes"),
        pytest.param([(0, 4000, 4000)], [make_reading(2 * SECOND)], id="not counted"),
    ],
)
def test_readings_of_anything_but_trained_steps_do_not_count(steps, readings) -> None:
    assert cycles(*steps, readings=readings) == (None, None)


def test_steps_of_warmup_are_not_trained() -> None:
    window = HardwareWindow()
    window.add(counted(1500))
    window.advance(0, SECOND)  # a step of warm-up
    window.advance(0, 3 * SECOND, (SECOND, 3 * SECOND))
    assert window.close().tensor_ns is None


def test_mfu_by_counter_is_what_the_device_multiplied_less_what_it_did_again() -> None:
    # 10^8 cycles a second x 62,500 FLOP are 6.25 % of 10^14 FLOP/s; 40 of 50 TFLOP are the model's
    assert mfu_by_counter(make_interval(10), SCALE) == pytest.approx(0.05)
    assert mfu_by_counter(make_interval(10, tensor_cycles=99_000_000), SCALE) == pytest.approx(0.055)
    # The peak is what the user says, the counter counts the same FLOPs.
    assert mfu_by_counter(make_interval(10), SCALE._replace(peak_flop_per_s=2e14)) == pytest.approx(0.025)


@pytest.mark.parametrize(
    "unknown",
    [{"tensor_ns": 790 * MS}, {"tensor_ns": 1260 * MS}, {"hardware_flops": None}, {"tensor_ns": None}],
)
def test_mfu_by_counter_is_unknown_where_it_is_not_of_the_interval(unknown) -> None:
    assert mfu_by_counter(make_interval(10, **unknown), SCALE) is None
    assert mfu_by_counter(make_interval(10), SCALE._replace(flop_per_clock=None)) is None


def test_the_run_compares_both_over_the_same_time() -> None:
    totals, columns = HardwareTotals(SCALE), HardwareTotals(SCALE)
    intervals = [
        make_interval(1, warmup_only=True, tensor_cycles=None, tensor_ns=None),
        make_interval(10, tensor_cycles=None, tensor_ns=None, iteration_ns=100 * MS),
        make_interval(20, tensor_ns=SECOND, tensor_cycles=120_000_000),
    ]
    for interval in intervals:
        add(totals, interval)
    totals.add_reading(counted(1000, processes=3))
    columns.add_intervals(Intervals.of(intervals))
    columns.add_reading(counted(1000, processes=3))
    assert totals.result() == columns.result()
    found = totals.result()
    assert (found.counter_read_s, found.max_processes) == (1, 3)
    # 80 TFLOP in 1.1 s on 8 devices of 100 TFLOP/s; the counter: 7.5 % x 80 / 100
    assert found.mfu_by_formula == pytest.approx(80 / 1.1 / 800)
    assert found.mfu_by_counter == pytest.approx(0.06)
