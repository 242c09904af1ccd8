"""The fresh Python environments of the walk, and typing in them."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sysconfig
import time
import venv
from dataclasses import dataclass
from pathlib import Path

from tests.processes import flagscale as fs
from tests.walk.steps import Place, Typed
from tests.wheel import REPO

DEADLINE_S = 600  # far beyond any healthy command on a busy machine: it only ends a hung one
CTRL_C = b"\x03"
# Of the checkout what its own commands need. Not the package: it would be found before the wheel's.
SCRIPTS = ("run.py", "conf", "examples", "scripts")


@dataclass(frozen=True)
class Shown:
    """What a command came to.

    Attributes:
        code: its exit code; None for one that was left while it ran.
        text: what it printed, errors included.
        came_s: of one that was left, how long the text that was waited for took to come.
    """

    code: int | None
    text: str
    came_s: float = 0.0

    def is_as_said(self, typed: Typed) -> bool:
        """Whether that is right."""
        is_code_right = self.code is None if typed.is_left else self.code in typed.codes
        return is_code_right and typed.shows in self.text


class Terminal:
    """Types commands in one directory, with one environment's programs first on the path."""

    def __init__(self, directory: Path, binaries: Path) -> None:
        self.directory = directory
        ours = ("FLAGSCALE_PERF_", "TORCHELASTIC_", "PYTHON", "VIRTUAL_ENV")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        path = os.pathsep.join((str(binaries), kept.get("PATH", os.defpath)))
        self.environment = kept | {"PATH": path, "TERM": "xterm", "COLUMNS": "160", "OMP_NUM_THREADS": "1"}

    def type(self, typed: Typed) -> Shown:
        """Runs it to its end, or leaves it as soon as it shows what it should."""
        return self._leave(typed) if typed.is_left else self._finish(typed.words)

    def _finish(self, words: str) -> Shown:
        process = subprocess.Popen(
            ["bash", "-c", words],
            cwd=self.directory,
            env=self.environment,
            start_new_session=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            text, _ = process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text, _ = process.communicate()
        return Shown(process.returncode, text)

    def _leave(self, typed: Typed) -> Shown:
        ours, its = os.openpty()
        began = time.monotonic()
        process = subprocess.Popen(
            ["setsid", "--ctty", "bash", "-c", typed.words],  # Ctrl-C reaches what has a terminal of its own
            cwd=self.directory,
            env=self.environment,
            stdin=its,
            stdout=its,
            stderr=its,
        )
        os.close(its)
        try:
            text = _read(ours, typed.shows)
            came_s = time.monotonic() - began
            os.write(ours, CTRL_C)
            _read(ours, None)
            process.wait(timeout=DEADLINE_S)
        finally:
            process.kill()
            process.wait()
            os.close(ours)
        return Shown(None, text, came_s)


def _read(terminal: int, shows: str | None) -> str:
    """What comes until that text has come; to the end with None."""
    deadline, text = time.monotonic() + DEADLINE_S, ""
    while (shows is None or shows not in text) and time.monotonic() < deadline:
        if select.select([terminal], [], [], 1.0)[0]:
            try:
                text += os.read(terminal, 1 << 16).decode(errors="replace")
            except OSError:  # the last one at the other end has gone
                break
    return text


class NoIndexError(Exception):
    """pip cannot reach a package index."""


def make(place: Place, home: Path, wheel: Path) -> Path:
    """Makes the environment; returns where its programs are. Raises NoIndexError."""
    venv.create(home, with_pip=True)
    binaries = home / "bin"
    if place is Place.WHEEL:
        ask_index(binaries, home)
        _pip(binaries, str(wheel))
    elif place is Place.BARE:
        _pip(binaries, "--no-deps", "--no-index", str(wheel))
    elif place is Place.HOST:
        _pip(binaries, "--no-deps", "--no-index", str(wheel))
        _lend_host(binaries)
    return binaries


def _pip(binaries: Path, *words: str) -> None:
    done = _run_pip(binaries, "install", *words)
    assert done.returncode == 0, done.stdout + done.stderr


def _run_pip(binaries: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [binaries / "python", "-m", "pip", *words, "--disable-pip-version-check", "--progress-bar", "off"],
        env=environment,
        capture_output=True,
        text=True,
    )


def ask_index(binaries: Path, home: Path) -> None:
    """Asks for a small package alone. Raises NoIndexError where even that cannot be had: then it would say
    nothing about ours.
    """
    words = ("--retries", "0", "--no-deps", "--no-cache-dir", "--dest", str(home / "probe"), "mdurl")
    asked = _run_pip(binaries, "download", *words)
    if asked.returncode:
        raise NoIndexError((asked.stderr.strip().splitlines() or ["pip says nothing"])[-1])


def _lend_host(binaries: Path) -> None:
    """Lets it find the packages of this environment, behind its own: torch and FlagScale take minutes to
    install. A plain path in a .pth file, so the .pth files there, an editable install of ours among them, are
    not read; the wheel is what is imported.
    """
    site = _run(binaries, "import sysconfig; print(sysconfig.get_path('purelib'))")
    Path(site, "lent_host.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    torchrun = binaries / "torchrun"
    torchrun.write_text(f"#!{binaries / 'python'}\nfrom torch.distributed.run import main\nmain()\n")
    torchrun.chmod(0o755)


def _run(binaries: Path, code: str) -> str:
    done = subprocess.run(
        [binaries / "python", "-I", "-c", code], cwd="/", capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def home_of_package(binaries: Path) -> Path:
    """Where the environment imports flagscale_perf from."""
    return Path(_run(binaries, "import flagscale_perf; print(flagscale_perf.__path__[0])"))


def copy_scripts(directory: Path) -> None:
    """What a command of the checkout needs, into the directory of the walk."""
    for name in SCRIPTS:
        source = REPO / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, directory / name)


def host_path() -> str:
    """What FlagScale's own runner would put on PYTHONPATH."""
    return os.pathsep.join((str(fs.root()), str(fs.root() / "third_party" / "Megatron-LM")))
