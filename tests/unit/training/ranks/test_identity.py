"""An identity as text, and what is no identity."""

import json

import pytest

from flagscale_perf.training.ranks.identity import MAX_TEXT, content_of, identity_of, signed
from tests.fakes import make_identity


def test_it_comes_back_as_it_was() -> None:
    identity = make_identity(3, device="NVIDIA H200", device_uuid="abc", stage=1, lockstep=5)
    assert identity_of(signed(identity)) == identity_of(content_of(identity)) == identity


def test_a_long_name_is_cut() -> None:
    assert identity_of(signed(make_identity(hostname="h" * 1000))).hostname == "h" * MAX_TEXT


@pytest.mark.parametrize(
    "change",
    [
        {"rank": -1}, {"rank": 1 << 30}, {"rank": True}, {"rank": "1"}, {"pid": 1.0}, {"hostname": None}, {"hostname": "h" * 300},
        {"device_uuid": 3}, {"stage": None}, {"lockstep": 1 << 60},
    ],
)  # fmt: skip
def test_what_cannot_be_true_is_refused(change: dict) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(change))} of a rank is "):
        identity_of(json.dumps(content_of(make_identity()) | change))


@pytest.mark.parametrize("text", ["", "{}", "[]", "[" * 100_000, '{"rank": 1}'])
def test_what_is_no_identity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting value|no identity|nested too deeply"):
        identity_of(text)
