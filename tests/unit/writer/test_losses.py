"""The last line of a run whose files are not whole: how much is missing, why, and where the rest is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flagscale_perf.spine.ring import Ring
from flagscale_perf.writer.losses import Outcome, described
from tests.fakes import make_step

LOGS = Path("/logs")
FULL = "run file: No space left on device"
SESSION = "20240129_103000"
RUN_FILE = f"/logs/perf_records_{SESSION}.jsonl"
NOTHING = "nothing was recorded in /logs: {}; give a --perf-log-dir that can be written"


@pytest.mark.parametrize(
    ("outcome", "otherwise", "line"),
    [
        (Outcome(SESSION, 300, 0, 0, "", True), "", ""),
        (Outcome(SESSION, 0, 0, 0, "", True), "", ""),
        # the writer has not come to them yet
        (Outcome(SESSION, 240, 60, 0, "", False), "", ""),
        (Outcome(None, 0, 300, 0, FULL, True), "", NOTHING.format(FULL)),
        # the file was made, and no room was left for its first line
        (Outcome(SESSION, 0, 300, 0, FULL, True), "", NOTHING.format(FULL)),
        (
            Outcome(None, 0, 300, 0, "", False),
            "the writer is blocked",
            "nothing is recorded yet in /logs: the writer is blocked",
        ),
        (
            Outcome(SESSION, 240, 60, 0, FULL, True),
            "",
            f"60 of 300 records are missing from {RUN_FILE}: {FULL}",
        ),
        (
            Outcome(SESSION, 240, 60, 0, FULL, False),
            "",
            f"60 of 300 records are not yet in {RUN_FILE}: {FULL}",
        ),
        # 5 of 305: what had no room in memory is lost even where everything works again
        (
            Outcome(SESSION, 300, 0, 5, "", True),
            "",
            f"5 of 305 records are missing from {RUN_FILE}: records came faster than the disk took them",
        ),
        (
            Outcome(SESSION, 300, 0, 0, "summary: Read-only file system", True),
            "",
            f"not everything was written: summary: Read-only file system; all 300 records are in {RUN_FILE}",
        ),
        # it stood still for a while, and caught up
        (Outcome(SESSION, 300, 0, 0, "", True), "the writer is blocked", ""),
    ],
)
def test_the_line(outcome: Outcome, otherwise: str, line: str) -> None:
    assert outcome.losses(LOGS, otherwise) == line


def test_the_outcome_is_what_the_ring_says() -> None:
    ring = Ring.create(slots=4)
    for iteration in range(1, 7):
        ring.put(make_step(iteration))
    ring.commit(1)
    ring.session, ring.trouble = SESSION, FULL
    assert Outcome.of(ring) == Outcome(SESSION, saved=1, waiting=3, dropped=2, trouble=FULL, is_over=False)
    ring.release()


def test_what_has_the_same_trouble_is_named_together() -> None:
    full = OSError(28, "No space left on device", "/logs/x")
    troubles = {
        "run file": full,
        "TensorBoard": ImportError("planted"),
        "summary": OSError(28, full.strerror),
    }
    assert (
        described(troubles) == "run file, summary: No space left on device; TensorBoard: ImportError: planted"
    )
    assert described({}) == ""


SCRIPT = """
import atexit, os, sys
from flagscale_perf.writer.losses import say_at_exit
atexit.register(print, "the host's own farewell")
say_at_exit(lambda: "")
say_at_exit(lambda: "60 of 300 records are missing")
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
print("the host's last line")
raise SystemExit(3)
"""


def test_it_comes_after_everything_else_once_and_in_the_process_that_lost_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert done.returncode == 3
    assert done.stdout.splitlines()[-3:] == [
        "the host's last line",
        "the host's own farewell",
        "flagscale_perf: 60 of 300 records are missing",
    ]
    assert done.stdout.count("flagscale_perf: ") == 1
