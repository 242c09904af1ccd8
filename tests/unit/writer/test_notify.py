"""Commands that are started with a finding: what is told how often, how they fail, how they end."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.spine.clock import NS_PER_S, Anchor
from flagscale_perf.spine.live import BEGINS, ENDS, WORSENS, FindingRecord
from flagscale_perf.writer import notify
from flagscale_perf.writer.notify import MOST, Gate, Notifier
from tests.processes.trainer import wait_for

MINUTE_NS = 60 * NS_PER_S
SLOW = FindingRecord("straggler", BEGINS, "rank 3 is late", 80.0, "ms", "rank 3", {"ranks": [3]}, at_ns=1)


def told(*course: tuple[float, str]) -> list[tuple[float, str]]:
    """What goes through of states at these minutes; each whole minute is looked at, too."""
    gate, found = Gate(), []
    for minute in sorted({*range(31), *(minute for minute, _ in course)}):
        for state in [state for when, state in course if when == minute]:
            finding = replace(SLOW, state=state)
            found += [(minute, state)] * gate.admit(finding, round(minute * MINUTE_NS))
        found += [(minute, each.state) for each in gate.due(round(minute * MINUTE_NS))]
    return found


def test_each_state_is_told_once_in_ten_minutes() -> None:
    assert told((1, BEGINS), (2, WORSENS), (3, ENDS)) == [(1, BEGINS), (2, WORSENS), (3, ENDS)]
    assert told((1, BEGINS), (2, BEGINS), (3, BEGINS), (12, BEGINS)) == [
        (1, BEGINS),
        (11, BEGINS),
        (21, BEGINS),
    ]


def test_what_comes_and_goes_is_told_as_it_is_when_ten_minutes_are_over() -> None:
    assert told((1, BEGINS), (2, ENDS), (3, BEGINS)) == [(1, BEGINS), (2, ENDS), (11, BEGINS)]
    assert told((1, BEGINS), (2, ENDS), (3, BEGINS), (4, ENDS)) == [(1, BEGINS), (2, ENDS)]


def test_the_end_of_what_nobody_was_told_is_not_told() -> None:
    assert told((1, ENDS)) == []
    gate = Gate()
    gate.told(SLOW, 0)  # by the writer before this one
    assert gate.admit(replace(SLOW, state=ENDS), 1) and not gate.admit(SLOW, 2)
    assert gate.admit(replace(SLOW, subject="rank 4"), 3), "another one"


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Path]:
    """Keeps each finding as a line."""
    path = tmp_path / "tell.sh"
    path.write_text(f"#!/bin/sh\ncat >> {shlex.quote(str(tmp_path / 'told'))}\n")
    path.chmod(0o755)
    yield path


Start = Callable[..., Notifier]


@pytest.fixture
def started() -> Iterator[Start]:
    """Starts notifiers; at the end neither their threads nor what they have started are left."""
    made: list[Notifier] = []

    def start(*words: str | Path) -> Notifier:
        made.append(Notifier([str(word) for word in words], "/perf", Anchor(5 * NS_PER_S, 0)))
        made[-1].resume("20240129_103000", [])
        return made[-1]

    yield start
    for each in made:
        each.close()
    with suppress(ChildProcessError):
        while True:
            os.wait()
    wait_for(
        "the threads", lambda: "flagscale_perf notify" not in {one.name for one in threading.enumerate()}
    )


def ended(notifier: Notifier) -> list[str]:
    wait_for("the commands", lambda: not notifier.is_busy)
    return notifier.look()


def test_the_finding_is_one_line_of_json(started: Start, script: Path) -> None:
    notifier = started(script)
    notifier.tell(SLOW)
    assert ended(notifier) == []
    (line,) = (script.parent / "told").read_text().splitlines()
    found = json.loads(line)
    assert (found["finding"], found["state"], found["ranks"]) == ("straggler", "begins", [3])
    assert (found["directory"], found["not_told"], found["unix_s"]) == ("/perf", 0, 5.0 + 1e-9)


def test_how_a_command_fails_is_said(started: Start) -> None:
    notifier = started("sh", "-c", "echo no such channel >&2; exit 3")
    notifier.tell(SLOW)
    assert ended(notifier) == ["--perf-on-finding sh: ended with code 3: no such channel"]


def test_a_command_that_is_not_there_is_said_before_any_finding(started: Start) -> None:
    notifier = started("/no/such/command")
    (said,) = wait_for("the word", notifier.look)
    assert said.startswith("--perf-on-finding: there is no command '/no/such/command' on ")
    assert said.endswith("; nobody is told of findings")
    notifier.tell(SLOW)
    assert not notifier.is_busy


def test_a_command_that_takes_too_long_is_killed_with_what_it_started(
    started: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "LIMIT_S", 0.5)
    child = tmp_path / "child"
    notifier = started("sh", "-c", f"sleep 1000 & echo $! > {shlex.quote(str(child))}; wait")
    begun = time.monotonic()
    notifier.tell(SLOW)
    assert time.monotonic() - begun < 0.4, "whoever tells does not wait"
    assert ended(notifier) == ["--perf-on-finding sh: ended with code 124: killed after 0.5 s"]
    process = Path(f"/proc/{child.read_text().strip()}/stat")
    wait_for("its end", lambda: not process.exists() or ") Z " in process.read_text())


def test_of_very_many_findings_the_first_are_told_and_the_others_counted(
    started: Start, script: Path
) -> None:
    notifier = started(script)
    for rank in range(MOST + 30):
        notifier.tell(replace(SLOW, subject=f"rank {rank}"))
    assert ended(notifier) == []
    assert len((script.parent / "told").read_text().splitlines()) == MOST


def test_what_waits_at_the_end_is_started_and_outlives_it(
    started: Start, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "END_S", 0.0)
    script.write_text(script.read_text().replace("cat", "sleep 0.5; cat"))
    notifier = started(script)
    for rank in range(3):
        notifier.tell(replace(SLOW, subject=f"rank {rank}"))
    notifier.close()
    wait_for(
        "all three",
        lambda: (script.parent / "told").exists() and (script.parent / "told").read_text().count("\n") == 3,
    )


def test_a_command_has_no_signals_ignored_though_the_writer_ignores_them(started: Start) -> None:
    words = "import signal; assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, 'ignored'"
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        notifier = started(sys.executable, "-c", words)
        notifier.tell(SLOW)
        assert ended(notifier) == []
    finally:
        signal.signal(signal.SIGTERM, before)
