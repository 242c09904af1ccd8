"""How a training ended, by what its loop raised."""

import pytest

from flagscale_perf.training.recording.ended import end_reason, lost_connection

GLOO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:537] "


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, "completed"),
        (SystemExit(3), "exit 3"),
        (KeyboardInterrupt(), "interrupted"),
        (OSError(), "exception OSError"),
    ],
)
def test_how_a_training_ended(error, reason):
    assert end_reason(error) == reason


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            RuntimeError(GLOO + "Read error [127.0.0.1]:29096: Connection reset by peer."),
            "Connection reset by peer",
        ),
        (RuntimeError(GLOO + "Connection closed by peer [127.0.0.1]:1234"), "Connection closed by peer"),
        (
            RuntimeError(
                "NCCL error in: NCCLUtils.cpp:94, remote process exited or there was a network error"
            ),
            "remote process exited",
        ),
    ],
)
def test_a_connection_that_another_rank_has_closed(error, said):
    assert lost_connection(error) == f"another rank has closed its connection: RuntimeError: {said}"


@pytest.mark.parametrize(
    "error",
    [
        None,
        ValueError("gloo"),
        ConnectionResetError("Connection reset by peer"),
        RuntimeError(GLOO + "Timed out"),
    ],
)
def test_any_other_error_says_nothing_of_other_ranks(error):
    assert lost_connection(error) == ""
