"""How events lie in each other, and how long a device is busy."""

from __future__ import annotations

import numpy as np

from flagscale_perf.profile.events import Kernels, Nesting
from tests.profiled_events import Event, events_of


def test_each_event_lies_in_the_nearest_one_around_it_on_its_thread() -> None:
    events = events_of(
        [
            Event("a", 0, 100),
            Event("b", 10, 40),
            Event("c", 10, 20),
            Event("d", 20, 40),
            Event("e", 50, 90),
            Event("other thread", 15, 95, thread=2),
            Event("gloo", 12, 80, is_async=True),
            Event("f", 100, 100),
            Event("g", 100, 120),
        ]
    )
    names = [events.names[index] for index in events.name]
    nesting = Nesting.of(events)

    def named(column: np.ndarray) -> dict[str, str]:
        return {name: names[index] for name, index in zip(names, column, strict=True) if index >= 0}

    assert named(nesting.parent) == {"b": "a", "c": "b", "d": "b", "e": "a"}
    assert named(nesting.previous) == {"d": "c", "e": "b", "f": "a", "g": "f"}  # of those in none, too
    assert named(nesting.last) == {"a": "e", "b": "d"}


def test_an_event_that_takes_no_time_lies_in_what_is_open() -> None:
    events = events_of([Event("a", 0, 10), Event("b", 5, 5), Event("c", 5, 9), Event("d", 9, 9)])
    assert Nesting.of(events).parent.tolist() == [-1, 0, 0, 0]


def test_a_value_is_inherited_from_the_nearest_one_that_has_it() -> None:
    events = events_of([Event("a", 0, 100), Event("b", 10, 90), Event("c", 20, 30), Event("d", 40, 50)])
    assert Nesting.of(events).inherited(np.array([7, -1, -1, 8])).tolist() == [7, 7, 7, 8]


def test_time_in_which_two_kernels_run_counts_once() -> None:
    starts, durations, none = np.array([0, 5, 8, 30]), np.array([10, 10, 2, 5]), np.zeros(0, np.int64)
    assert Kernels((), none, starts, durations, none, none).busy_ns == 20
    assert Kernels((), none, none, none, none, none).busy_ns == 0
