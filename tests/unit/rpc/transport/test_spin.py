"""Who waited for a short time looks before it sleeps the next time; who waited for long sleeps at once."""

from __future__ import annotations

import os

import pytest

from flagscale_perf.rpc.transport import spin
from flagscale_perf.rpc.transport.spin import SHORT_NS, Spin


class Looks:
    """Counts them; there is something at the third."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, timeout: int) -> bool:
        assert timeout == 0
        self.count += 1
        return self.count % 3 == 0


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch):
    def have(count: int, load: float = 0.0) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(count)))
        monkeypatch.setattr(os, "cpu_count", lambda: count)
        monkeypatch.setattr(spin, "SPIN_NS", 10**10)  # looking ends by what is found, not by time
        monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))

    return have


def test_a_short_wait_makes_the_next_one_look_and_a_long_one_makes_it_sleep(cores) -> None:
    cores(2)
    looks = Looks()
    place = Spin(looks)
    found = []
    for waited_ns in (SHORT_NS, SHORT_NS - 1, SHORT_NS - 1, SHORT_NS):
        place.wait()
        place.ended(waited_ns)
        found.append(looks.count)
    assert found == [0, 0, 3, 6]
    place.wait()
    assert looks.count == 6


def test_looking_ends(cores, monkeypatch: pytest.MonkeyPatch) -> None:
    cores(2)
    monkeypatch.setattr(spin, "SPIN_NS", 1)
    place = Spin(lambda timeout: False)
    place.ended(0)
    assert place.wait() > 0


@pytest.mark.parametrize(("count", "load", "looks_expected"), [(1, 0.0, 0), (4, 5.1, 0), (4, 5.0, 3)])
def test_with_one_core_or_too_much_to_do_it_never_looks(
    cores, count: int, load: float, looks_expected: int
) -> None:
    cores(count, load)
    looks = Looks()
    place = Spin(looks)
    place.ended(0)
    place.wait()
    assert looks.count == looks_expected
