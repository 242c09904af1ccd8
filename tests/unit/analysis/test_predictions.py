"""What a prediction says of a gain, and an offer of a prediction."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.predictions import Change, MissingRecordError, Prediction, offered

MADE = Prediction(
    text="m=16",
    kind="B",
    measured_ns=100e6,
    predicted_ns=180e6,
    low_ns=170e6,
    high_ns=190e6,
    parts={},
    plain_ns=10e6,
    ceiling_ns=None,
    steps=20,
    evidence="20 captured steps, 1-20",
    checked=(3, 4),
    gain_half_ns=10e6,
    samples=2.0,
)


def test_a_gain_is_against_as_many_samples() -> None:
    assert (MADE.gain_ns, MADE.is_gain) == (20e6, True)
    assert not MADE._replace(gain_half_ns=20e6).is_gain
    assert not MADE._replace(samples=1.0).is_gain


def test_an_offer_is_of_as_many_devices() -> None:
    found = offered(MADE, "--global-batch-size 32")
    assert (found.gain, found.least, found.most) == pytest.approx((1 / 9, 1 / 19, 3 / 17))
    assert found.is_gain and (found.hits, found.checks) == (3, 4)
    assert not offered(MADE._replace(ranks=2.0), "").is_gain
    assert offered(MADE._replace(gain_half_ns=160e6), "").most is None


def test_the_text_of_a_change_is_as_the_user_may_write_it() -> None:
    assert Change("forward", "*=", "0.5", "rank=3", "A").text == "rank=3 forward*=0.5"
    assert Change("m", "=", "16", "", "B").text == "m=16"


def test_what_is_missing_names_the_record_and_the_command() -> None:
    error = MissingRecordError("pp=2", "a message", "run it with two stages")
    assert str(error) == "pp=2: no answer without a message; record it: run it with two stages"
    assert (error.record, error.command) == ("a message", "run it with two stages")
