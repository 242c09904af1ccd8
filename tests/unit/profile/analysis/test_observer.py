"""What profiling itself costs."""

from __future__ import annotations

import pytest

from flagscale_perf.profile.analysis.observer import Observer, observers_of
from flagscale_perf.profile.analysis.source import Profile


def test_profiled_steps_against_the_clean_ones_beside_them(profile: Profile) -> None:
    one = observers_of(profile)["train"]
    assert one.ratios == [100 / 96, 102 * 2 / (96 + 98)] * 2
    assert one.clean == [98 / 96] * 2
    assert one.ratio == pytest.approx((100 / 96 + 102 / 97) / 2)
    assert one.spread == pytest.approx((102 / 97 - 100 / 96) / 2)
    assert (one.outside_ns, one.reduce_ns) == (2.5e6, 10e6)
    assert one.words == "x1.047 +- 0.005, 4 pairs"


def test_without_a_clean_step_nothing_is_said() -> None:
    one = Observer([], [], None, None)
    assert one.words == "not known: no clean step beside a profiled one"
    assert one.as_dict()["ratio"] is None
