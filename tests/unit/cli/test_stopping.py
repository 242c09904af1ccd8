"""Signals where a command waits, and where it must not be disturbed."""

from __future__ import annotations

import os
import signal

import pytest

from flagscale_perf.cli.stopping import SIGNALS, Stop


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_waits_is_left_at_once(number: int, code: int) -> None:
    before = [signal.getsignal(one) for one in SIGNALS]
    with Stop() as stop, pytest.raises(KeyboardInterrupt), stop.waiting():
        os.kill(os.getpid(), number)
        pytest.fail("the signal did not come")
    assert stop.code == code
    assert [signal.getsignal(one) for one in SIGNALS] == before


def test_what_is_being_written_is_written_first() -> None:
    done = []
    with Stop() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        done.append("written")
        with pytest.raises(KeyboardInterrupt), stop.waiting():
            done.append("waited")
    assert done == ["written"]
    assert stop.code == 143
