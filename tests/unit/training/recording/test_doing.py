"""A rank's own answer to what it is doing."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from flagscale_perf.device.marks import start_of, stop_of
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.ring import MAX_ANSWER_BYTES
from flagscale_perf.training import stacks
from flagscale_perf.training.phases import NUMBER_OF
from flagscale_perf.training.ranks.inquiry import doing_of
from flagscale_perf.training.recording.doing import Whereabouts, answer_of
from flagscale_perf.training.stacks import Stacks
from tests.fakes import make_identity


def answer(loop: Whereabouts) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer_of(loop, threading.get_ident()))
    doing_of(found, make_identity(0))
    return found


def test_in_a_step_it_is_what_lasts_since_the_last_mark() -> None:
    begun_ns = monotonic_ns() - 60 * NS_PER_S
    loading, forward = NUMBER_OF["batch-generator"], NUMBER_OF["forward-compute"]
    marks = (
        begun_ns + start_of(forward),
        begun_ns + NS_PER_S + start_of(loading),
        begun_ns + 2 * NS_PER_S + stop_of(loading),
    )
    timeline: Any = SimpleNamespace(under_way=lambda: marks)
    found = answer(Whereabouts("step", 41, begun_ns, timeline))
    assert (found["iteration"], found["where"], found["phase"]) == (41, "step", "forward")
    assert 58 <= found["for_ns"] / NS_PER_S < 60
    assert any(frame.endswith(" answer") for frame in found["stack"])


def test_elsewhere_it_is_since_that_began() -> None:
    found = answer(Whereabouts("checkpoint", 41, monotonic_ns() - 5 * NS_PER_S))
    assert (found["where"], found["phase"]) == ("checkpoint", None)
    assert found["for_ns"] >= 5 * NS_PER_S


def test_it_is_never_longer_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = ["深" * 150] * 40
    seen = Stacks(frames, {str(number): frames for number in range(16)}, "itself")
    monkeypatch.setattr(stacks, "own", lambda thread: seen)
    made = answer_of(Whereabouts("step", 1, 0), 0)
    assert len(made.encode()) < MAX_ANSWER_BYTES
    assert 10 < len(json.loads(made)["stack"]) <= 40
