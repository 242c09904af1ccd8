"""A ring or a signal ends a wait, from any thread, however full the pipe is."""

from __future__ import annotations

import os
import select
import signal
import threading

import pytest

from flagscale_perf.rpc.transport.wake import Wake


@pytest.fixture
def wake():
    made = Wake()
    yield made
    made.close()


def is_ready(wake: Wake) -> bool:
    return bool(select.select([wake.descriptor], [], [], 0)[0])


def test_ring_ends_a_wait_until_it_is_drained(wake) -> None:
    assert not is_ready(wake)
    wake.ring()
    wake.ring()
    assert is_ready(wake)
    wake.drain()
    assert not is_ready(wake)
    wake.drain()


def test_a_full_pipe_is_no_error(wake) -> None:
    for _ in range(70_000):
        wake.ring()
    assert is_ready(wake)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_itself_and_calls_stop(wake, number) -> None:
    """Even where its handler has not run yet, as right before a wait begins: the byte is there before."""
    before = signal.getsignal(number)
    called: list[bool] = []
    with wake.rung_by_signals(lambda: called.append(is_ready(wake))):
        os.kill(os.getpid(), number)
        while not called:
            select.select([wake.descriptor], [], [], 1)
    assert called == [True]
    assert signal.getsignal(number) is before
    assert signal.set_wakeup_fd(-1) == -1


def test_on_another_thread_signals_stay_what_they_are(wake) -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[object] = []

    def look() -> None:
        with wake.rung_by_signals(lambda: None):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]


def test_closed_twice_and_rung_after_it(wake) -> None:
    wake.close()
    wake.close()
    wake.ring()
    assert wake.descriptor == -1
