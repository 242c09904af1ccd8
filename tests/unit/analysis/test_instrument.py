"""The instruments that are installed."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.instrument import Instrument, installed, load
from flagscale_perf.spine.errors import PerfError


def test_every_instrument_is_found_and_can_be_loaded() -> None:
    assert installed() == ["bench", "profile", "rpc", "trace", "training"]
    assert [type(load(name)) for name in installed()] == [Instrument] * 5


@pytest.mark.parametrize("name", ["sonar", "", "../training"])
def test_one_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(
        PerfError, match=f"the instrument '{name}' is not known; this version has bench, prof"
    ):
        load(name)
