"""An identity as JSON, and what is no identity."""

import pytest

from flagscale_perf.training.ranks.identity import MAX_TEXT, content_of, identity_of
from tests.fakes import make_identity


def test_it_comes_back_as_it_was() -> None:
    identity = make_identity(3, device="NVIDIA H200", device_uuid="abc", stage=1, chunks=2, samples=1)
    assert identity_of(content_of(identity)) == identity


def test_a_long_name_is_cut() -> None:
    assert identity_of(content_of(make_identity(hostname="h" * 1000))).hostname == "h" * MAX_TEXT


@pytest.mark.parametrize(
    "change",
    [
        {"rank": -1},
        {"rank": 1 << 30},
        {"rank": True},
        {"rank": "1"},
        {"pid": 1.0},
        {"hostname": None},
        {"hostname": "h" * 300},
        {"device_uuid": 3},
        {"stage": None},
        {"lockstep": 1 << 60},
        {"chunks": None},
        {"samples": -1},
        {"sample_tokens": "64"},
    ],
)
def test_what_cannot_be_true_is_refused(change: dict) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(change))} of a rank is "):
        identity_of(content_of(make_identity()) | change)


@pytest.mark.parametrize("content", ["", {}, [], None, {"rank": 1}])
def test_what_is_no_identity_is_refused(content: object) -> None:
    with pytest.raises(ValueError, match="no identity of a rank"):
        identity_of(content)
