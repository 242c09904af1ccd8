"""Every phase has words and causes."""

from __future__ import annotations

from flagscale_perf.training.analysis.findings.causes import causes_in, changes_in, named, place_of
from flagscale_perf.training.phases import PHASES


def test_every_phase_is_named_in_words() -> None:
    assert [phase for phase in PHASES if "_" in named(phase) or not causes_in(phase, [])] == []


def test_no_phase_in_particular_says_nothing() -> None:
    assert (place_of(None), causes_in(None, ["a cause"]), changes_in(None, [])) == ("", ["a cause"], [])
    assert place_of("data_loading") == " in data loading"
    assert causes_in("data_loading", ["a cause"])[-1] == "a cause"
    assert [change.flags for change in changes_in("between_steps", [])] == [["--log-interval"]]
