"""An error that a signal handler raised is recognised wherever it interrupted the code."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from flagscale_perf.spine.errors import did_you_mean, is_misspelt, raised_by_signal, traceback_lines


@pytest.fixture
def usr1() -> Iterator[Callable[[object], None]]:
    """Sets the handler of SIGUSR1 for one test."""
    previous = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: signal.signal(signal.SIGUSR1, handler) and None
    signal.signal(signal.SIGUSR1, previous)


def stop(number: int, frame: object) -> None:
    raise SystemExit(number)


def stop_by_any_arguments(*arguments: object) -> None:
    raise SystemExit(arguments[0])


@pytest.mark.parametrize("handler", [stop, stop_by_any_arguments])
def test_a_handler_of_python_raised_it(handler: object, usr1: Callable[[object], None]) -> None:
    usr1(handler)
    with pytest.raises(SystemExit) as raised:
        sorted([2, 1], key=lambda value: signal.raise_signal(signal.SIGUSR1))
    assert raised_by_signal(raised.value)


def test_a_failure_of_called_code_is_none_of_a_signal() -> None:
    with pytest.raises(ValueError, match="invalid literal") as raised:
        [int(word) for word in ["1", "x"]]
    assert not raised_by_signal(raised.value)
    assert not raised_by_signal(ValueError("never raised"))


def test_a_traceback_is_made_only_where_it_is_asked_for() -> None:
    try:
        int("x")
    except ValueError:
        assert traceback_lines(debug=False) == []
        lines = traceback_lines(debug=True)
    assert (lines[0], lines[-1]) == (
        "Traceback (most recent call last):",
        "ValueError: invalid literal for int() with base 10: 'x'",
    )


def test_the_nearest_words_first_whatever_their_case() -> None:
    known = ["mfu", "hfu", "tokens_per_s", "H200 SXM"]
    assert did_you_mean("XFU", known) == "; did you mean mfu or hfu?"
    assert did_you_mean("xfu", known, most=1) == "; did you mean mfu?"
    assert did_you_mean("h200 sxn", known) == "; did you mean H200 SXM?"
    assert did_you_mean("something else", known) == did_you_mean("x", []) == ""


def test_what_all_words_begin_with_does_not_count() -> None:
    known = ["LONG_PREFIX_INTERVAL", "LONG_PREFIX_DIR"]
    assert did_you_mean("LONG_PREFIX_QUUX", known, 1, "LONG_PREFIX_") == ""
    assert (
        did_you_mean("LONG_PREFIX_INTERVALL", known, 1, "LONG_PREFIX_")
        == "; did you mean LONG_PREFIX_INTERVAL?"
    )


def test_a_slip_is_told_from_another_word() -> None:
    known = ["perf_log_interval", "enable_perf_monitor"]
    words = ["perf_log_intervall", "enable_perf_monitr", "perf_log_interval", "enable_monitor", "hidden_size"]
    assert [is_misspelt(word, known) for word in words] == [True, True, False, False, False]
