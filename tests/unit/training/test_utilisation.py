"""MFU and HFU: by hand, unknown where a part is unknown, and above 100 % in no average."""

from __future__ import annotations

import pytest

from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.utilisation import Scale, TrustedWork, Utilisation, Work, suspicion
from tests.fakes import SCALE, SECOND, make_interval, make_step

FACTS = {"world_size": 8, "peak_flop_per_s": 1e14, "peak_source": "a round number", "dtype": "bf16"}


def test_shares_of_the_peak() -> None:
    # 200 and 240 TFLOP in 2 s on 4 devices: 25 and 30 TFLOP/s each, of 100
    assert Work(2 * SECOND, 200 * 10**12, 240 * 10**12).utilisation(Scale(4, 1e14)) == Utilisation(0.25, 0.3)


@pytest.mark.parametrize("scale", [Scale(None, 1e14), Scale(4, None)])
def test_without_devices_or_peak_there_is_no_share(scale: Scale) -> None:
    assert Work(SECOND, 10**12, 10**12).utilisation(scale) == Utilisation(None, None)


def test_without_time_or_flops_there_is_no_share() -> None:
    assert Work().utilisation(SCALE) == Utilisation(None, None)
    assert Work(SECOND, 4 * 10**14, None).utilisation(SCALE) == Utilisation(0.5, None)


def test_a_sum_with_a_hole_is_none() -> None:
    whole = Work.of(make_step(1)).plus(Work.of(make_interval(10)))
    assert whole == Work(1_100_000_000, 44 * 10**12, 55 * 10**12)
    assert whole.plus(Work(SECOND, None, 1)) == Work(2_100_000_000, None, 55 * 10**12 + 1)


@pytest.mark.parametrize(
    ("mfu", "hfu", "suspect"),
    [(1.0, 1.0, False), (0.9, 1.01, True), (1.01, None, True), (None, None, False), (0.5, 0.6, False)],
)
def test_more_than_a_device_can_do_is_suspect(mfu: float | None, hfu: float | None, suspect: bool) -> None:
    assert Utilisation(mfu, hfu).is_suspect is suspect


class TestTrustedWork:
    """Steps of 100 ms on 8 devices of 100 TFLOP/s: 80 TFLOP are all they can do."""

    def close(self, trusted: TrustedWork, *steps: tuple[int, int]) -> None:
        """An interval of one step for each (model, hardware) TFLOP."""
        records = [
            make_step(1, model_flops=model * 10**12, hardware_flops=hardware * 10**12)
            for model, hardware in steps
        ]
        for record in records:
            trusted.add_step(record)
        model, hardware = (sum(column) * 10**12 for column in zip(*steps, strict=True))
        trusted.close(
            make_interval(
                10, iteration_ns=len(steps) * SECOND // 10, model_flops=model, hardware_flops=hardware
            )
        )

    def test_it_is_sums_over_sums(self) -> None:
        trusted = TrustedWork(SCALE)
        self.close(trusted, (20, 40))
        self.close(trusted, (40, 60), (60, 60), (40, 80))
        assert (trusted.utilisation(), trusted.suspect_intervals) == (Utilisation(160 / 320, 240 / 320), 0)

    def test_an_interval_above_the_peak_is_counted_and_left_out_of_both(self) -> None:
        trusted = TrustedWork(SCALE)
        self.close(trusted, (20, 40))
        self.close(trusted, (70, 90))  # only HFU is above 1
        self.close(trusted, (60, 60), (60, 60))
        assert trusted.utilisation() == pytest.approx((140 / 240, 160 / 240))
        assert trusted.suspect_intervals == 1

    def test_one_step_above_it_in_an_interval_below_it_counts(self) -> None:
        trusted = TrustedWork(SCALE)
        self.close(trusted, (90, 90), (30, 30))
        assert (trusted.utilisation(), trusted.suspect_intervals) == (Utilisation(0.75, 0.75), 0)

    def test_of_nothing_but_suspect_intervals_there_is_no_average(self) -> None:
        trusted = TrustedWork(SCALE)
        self.close(trusted, (90, 90))
        assert (trusted.utilisation(), trusted.suspect_intervals) == (Utilisation(None, None), 1)

    def test_steps_behind_the_last_interval_count_unless_they_are_above_it(self) -> None:
        trusted = TrustedWork(SCALE)
        self.close(trusted, (40, 40))
        trusted.add_step(make_step(2, model_flops=20 * 10**12, hardware_flops=40 * 10**12))
        assert trusted.utilisation() == Utilisation(60 / 160, 0.5)
        trusted.add_step(make_step(3, model_flops=200 * 10**12, hardware_flops=200 * 10**12))
        assert (trusted.utilisation(), trusted.suspect_intervals) == (Utilisation(0.5, 0.5), 0)


def test_what_is_suspect_is_said_with_the_interval_the_peak_and_what_to_check() -> None:
    # 833.6 and 1000 TFLOP in 1 s on 8 devices of 100 TFLOP/s
    text = suspicion(make_interval(20, model_flops=8336 * 10**11, hardware_flops=10**15), RunFacts.of(FACTS))
    assert text == (
        "iterations 11 to 20: MFU 104.2 %, HFU 125.0 % of a peak of 100 TFLOP/s (a round number). No "
        "device passes its peak: check "
        "--perf-peak-tflops, the data type (bf16), and whether packed documents are counted as whole "
        "sequences. "
        "Such intervals are marked and in no average"
    )


def test_nothing_is_said_of_what_is_not_suspect() -> None:
    assert suspicion(make_interval(20), RunFacts.of(FACTS)) is None
    assert (
        suspicion(make_interval(20, model_flops=10**18), RunFacts.of(FACTS | {"peak_flop_per_s": None}))
        is None
    )


@pytest.mark.parametrize("value", [None, 0, -8, "8", float("nan"), float("inf"), 10**400, [8]])
def test_a_scale_nothing_can_be_divided_by_is_unknown(value: object) -> None:
    assert Scale.of(RunFacts.of({"world_size": value, "peak_flop_per_s": value})) == Scale(None, None)
    assert Scale.of(RunFacts.of({})) == Scale(None, None)
