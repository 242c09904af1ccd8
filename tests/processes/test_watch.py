"""`flagscale-perf watch` in a real terminal, over a process that trains."""

from __future__ import annotations

import shutil
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.processes.trainer import REPO, trainer, wait_for
from tests.terminal import Terminal, terminal

pytestmark = pytest.mark.skipif(
    shutil.which("tmux") is None, reason="tmux is not installed; the terminal that these tests look at is its"
)


ECHO = 'stty -a | tr " " "\\n" | grep -x -e -echo -e echo'


def watching(tmp_path: Path, logs: Path) -> AbstractContextManager[Terminal]:
    command = ["env", f"PYTHONPATH={REPO}", sys.executable, "-m", "flagscale_perf", "watch", str(logs)]
    return terminal(tmp_path, command, then=f'echo "exit status $?, terminal: $({ECHO})"')


def wait_for_text(screen: Terminal, *texts: str) -> str:
    """What is shown, once all of these are."""
    return wait_for(
        f"{texts} on the screen", lambda: all(each in (shown := screen.text()) for each in texts) and shown
    )


def test_a_live_run_its_kill_and_the_session_after_it(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with trainer(logs) as training:
        training.tell("put", 20)
        training.writer()
        with watching(tmp_path, logs) as screen:
            shown = wait_for_text(screen, "RUNNING", "iteration 20 of 100", "2 intervals")
            assert ["TFLOPS/GPU", "5.00", "5.00", "5.00", "▄▄"] in [
                line.split() for line in shown.splitlines()
            ]
            training.tell("put", 20)
            wait_for_text(screen, "iteration 40 of 100", "4 intervals")
            screen.resize(40)
            assert max(len(line) for line in wait_for("a narrow screen", lambda: narrow(screen.text()))) <= 40
            screen.resize(100)
            training.kill()
            wait_for_text(screen, "KILLED", "iteration 40 of 100")
            with trainer(logs) as again:
                again.tell("put", 3)
                wait_for_text(screen, "RUNNING", "iteration 3 of 100", "before it: killed after iteration 40")
                screen.press("C-c")
                wait_for_text(
                    screen, "RUNNING  session", "exit status 0, terminal: echo"
                )  # the last frame, and the terminal as before


def narrow(shown: str) -> list[str] | None:
    """The lines, once the screen is drawn anew."""
    return shown.splitlines() if "RUNNING" in shown and "intervals" not in shown else None


def test_a_run_whose_writer_is_killed_too(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with trainer(logs) as training:
        training.tell("put", 20)
        writer = training.writer()
        with watching(tmp_path, logs) as screen:
            wait_for_text(screen, "RUNNING", "iteration 20 of 100")
            training.process.send_signal(19)  # SIGSTOP: it must not replace its writer
            writer.kill()
            training.kill()
            wait_for_text(screen, "KILLED", "no end was recorded and the run file is no longer written")
            screen.press("C-c")
            wait_for_text(screen, "exit status 0, terminal: echo")


def test_a_run_that_has_not_begun_is_waited_for(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with watching(tmp_path, logs) as screen:
        wait_for_text(screen, "waiting for the first record of the run", "no run in")
        logs.mkdir()
        wait_for_text(screen, "waiting for the first record of the run", "no run in")
        with trainer(logs) as training:
            training.tell("put", 20)
            wait_for_text(screen, "RUNNING", "iteration 20 of 100")
            screen.press("C-c")
            wait_for_text(screen, "exit status 0, terminal: echo")
