"""A command under a limit, as a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from flagscale_perf.writer import limited


def run(limit_s: float, *command: str, given: str = "") -> tuple[int, str]:
    words = [sys.executable, "-I", limited.__file__, str(limit_s), *command]
    done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("command", "end"),
    [
        (("true",), (0, "")),
        (("sh", "-c", "cat >&2; exit 3"), (3, "one line")),
        (("sh", "-c", "kill -TERM $$"), (143, "")),
        (("/no/such",), (127, "[Errno 2] No such file or directory: '/no/such'")),
    ],
)
def test_its_end_is_the_command_s(command: tuple[str, ...], end: tuple[int, str]) -> None:
    assert run(300, *command, given="one\nline\n") == end


def test_of_what_it_says_the_end_is_kept() -> None:
    code, said = run(300, "sh", "-c", "seq 1 200000 >&2; exit 1")
    assert code == 1 and said.endswith(" 199999 200000") and len(said) <= 200


def test_what_takes_too_long_is_killed_with_its_last_words() -> None:
    assert run(0.5, "sh", "-c", "echo waiting >&2; sleep 1000") == (124, "killed after 0.5 s: waiting")


def test_what_it_leaves_behind_is_not_waited_for() -> None:
    assert run(300, "sh", "-c", "sleep 3 & exit 0") == (0, "")
