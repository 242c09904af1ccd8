"""Messages of a writer as lines."""

from __future__ import annotations

import pytest

from flagscale_perf.writer.messages import Figures, Finished, Line, Message, Stray, Trouble, decode, encode


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (Line("wandb is a word of the log"), b'["line","wandb is a word of the log",0]'),
        (Figures({"mfu": 0.5}), b'["figures",{"mfu":0.5}]'),
        (Trouble("disk full"), b'["trouble","disk full"]'),
        (Finished(), b'["finished"]'),
    ],
)
def test_a_message_comes_back_as_it_was(message, line: bytes) -> None:
    assert encode(message) == line + b"\n"
    assert decode(line) == message
    assert type(decode(line)) is type(message)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"Traceback (most recent call last):",
        b'["line"]',
        b'["other","x"]',
        b"[]",
        b"5",
        b"[[],1]",
        b"\xff",
    ],
)
def test_what_is_no_message_is_kept_as_text(line: bytes) -> None:
    expected: Message = Stray(line.decode("utf-8", "replace"))
    assert decode(line) == expected
