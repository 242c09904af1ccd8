"""Who waited for a short time looks before it sleeps the next time; who waited for long sleeps at once."""

from __future__ import annotations

import os

import pytest

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
    def have(count: int) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(count)))

    return have


def test_a_short_wait_makes_the_next_one_look_and_a_long_one_makes_it_sleep(cores) -> None:
    cores(2)
    looks = Looks()
    spin = Spin(looks)
    found = []
    for waited_ns in (SHORT_NS, SHORT_NS - 1, SHORT_NS - 1, SHORT_NS):
        spin.wait()
        spin.ended(waited_ns)
        found.append(looks.count)
    assert found == [0, 0, 3, 6]
    spin.wait()
    assert looks.count == 6


def test_looking_ends(cores) -> None:
    cores(2)
    spin = Spin(lambda timeout: False)
    spin.ended(0)
    assert spin.wait() > 0


def test_with_one_core_it_never_looks(cores) -> None:
    cores(1)
    looks = Looks()
    spin = Spin(looks)
    spin.ended(0)
    spin.wait()
    assert looks.count == 0
