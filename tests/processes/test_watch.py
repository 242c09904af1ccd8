"""`flagscale-perf watch` in a real terminal, over a process that trains."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes.trainer import REPO, trainer, wait_for

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed; the terminal that these tests look at is its")


class Screen:
    """A terminal of 100 x 30 in which `watch` runs."""

    def __init__(self, socket: Path, *words: str) -> None:
        self._tmux = ["tmux", "-S", str(socket), "-f", os.devnull]
        command = [sys.executable, "-m", "flagscale_perf.cli", "watch", *words]
        environment = os.environ | {"PYTHONPATH": str(REPO), "LC_ALL": "C.UTF-8"}
        echo = 'stty -a | tr " " "\\n" | grep -x -e -echo -e echo'
        shell = f'trap : INT; {" ".join(command)}; echo "exit status $?, terminal: $({echo})"; cat'
        subprocess.run(
            [*self._tmux, "new-session", "-d", "-x", "100", "-y", "30", "sh", "-c", shell], cwd=REPO, env=environment, check=True
        )

    def text(self) -> str:
        done = subprocess.run([*self._tmux, "capture-pane", "-p"], capture_output=True, text=True, check=True)
        return done.stdout

    def wait_for(self, *texts: str) -> str:
        """What is shown, once all of these are."""
        return wait_for(f"{texts} on the screen", lambda: all(each in (shown := self.text()) for each in texts) and shown)

    def press(self, key: str) -> None:
        subprocess.run([*self._tmux, "send-keys", key], check=True)

    def resize(self, columns: int) -> None:
        subprocess.run([*self._tmux, "resize-window", "-x", str(columns), "-y", "30"], check=True)

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=True)


@contextmanager
def watching(tmp_path: Path, *words: str) -> Iterator[Screen]:
    screen = Screen(tmp_path / "tmux", *words)
    try:
        yield screen
    finally:
        screen.close()


def test_a_live_run_its_kill_and_the_session_after_it(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with trainer(logs) as training:
        training.tell("put", 20)
        training.writer()
        with watching(tmp_path, str(logs)) as screen:
            shown = screen.wait_for("RUNNING", "iteration 20 of 100", "2 intervals")
            assert ["TFLOPS/GPU", "5.00", "5.00", "5.00", "▄▄"] in [line.split() for line in shown.splitlines()]
            training.tell("put", 20)
            screen.wait_for("iteration 40 of 100", "4 intervals")
            screen.resize(40)
            assert max(len(line) for line in wait_for("a narrow screen", lambda: narrow(screen.text()))) <= 40
            screen.resize(100)
            training.kill()
            screen.wait_for("KILLED", "iteration 40 of 100")
            with trainer(logs) as again:
                again.tell("put", 3)
                screen.wait_for("RUNNING", "iteration 3 of 100", "before it: killed after iteration 40")
                screen.press("q")
                screen.wait_for("RUNNING  session", "exit status 0, terminal: echo")  # the last frame stays, the terminal is as it was


def narrow(shown: str) -> list[str] | None:
    """The lines, once the screen is drawn anew."""
    return shown.splitlines() if "RUNNING" in shown and "intervals" not in shown else None


def test_a_run_whose_writer_is_killed_too(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with trainer(logs) as training:
        training.tell("put", 20)
        writer = training.writer()
        with watching(tmp_path, str(logs)) as screen:
            screen.wait_for("RUNNING", "iteration 20 of 100")
            training.process.send_signal(19)  # SIGSTOP: it must not replace its writer
            writer.kill()
            training.kill()
            screen.wait_for("KILLED", "no end was recorded and nobody writes the run file any more")
            screen.press("C-c")
            screen.wait_for("exit status 130, terminal: echo")
