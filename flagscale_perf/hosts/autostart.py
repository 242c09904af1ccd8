"""What `flagscale-perf enable` leaves in a Python environment: hooks for training workers, nothing for
anybody else.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from flagscale_perf.arguments import env_of, flag_of, parse_bool
from flagscale_perf.spine.errors import PerfError

PTH_NAME = "flagscale_perf_autostart.pth"
_FLAG, _VARIABLE = flag_of("enable_perf_monitor"), env_of("enable_perf_monitor")
# Python runs this line at every start; unless the flag or the variable is there, it imports nothing of ours.
PTH_LINE = (
    f'import sys, os; (any(w.startswith("{_FLAG}") for w in sys.orig_argv) or "{_VARIABLE}" in os.environ)'
    ' and __import__("flagscale_perf.hosts.autostart").hosts.autostart.start()\n'
)
_INTERPRETER_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def start() -> None:
    """Called by the .pth line: installs the hooks if this process is a training worker, at most once."""
    argv = worker_argv(sys.orig_argv, os.environ)
    if argv is None or "flagscale_perf.hosts.install" in sys.modules:  # a .pth file may be run twice
        return
    from flagscale_perf.hosts.install import Installation

    atexit.register(Installation(argv, os.environ).install().tell_at_exit)


def worker_argv(orig_argv: Sequence[str], environ: Mapping[str, str]) -> list[str] | None:
    """The script's arguments if the command line runs a Python script that asks for the monitor, else None.

    Launchers (`torchrun`, `python -m torch.distributed.run`, pip) carry the flag only for others.
    """
    words = list(orig_argv[1:])
    while words and words[0].startswith("-"):
        if words[0] in ("-m", "-c"):
            return None
        words = words[2 if words[0] in _INTERPRETER_OPTIONS_WITH_VALUE else 1 :]
    if not words or not words[0].endswith(".py"):
        return None
    return words[1:] if asks_for_monitor(words, environ) else None


def asks_for_monitor(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether a command line has the flag, or the environment says so."""
    return any(word == _FLAG or word.startswith(_FLAG + "=") for word in words) or _is_true(
        environ.get(_VARIABLE, "")
    )


def pth_path() -> Path:
    """Where the file lies in this Python environment."""
    return Path(sysconfig.get_path("purelib")) / PTH_NAME


def is_enabled() -> bool:
    """Whether the file is there with this version's content."""
    path = pth_path()
    return path.is_file() and path.read_text(encoding="utf-8") == PTH_LINE


def enable() -> Path:
    """Writes the file; does nothing if it is there. Returns its path. Raises PerfError."""
    if subprocess.run(
        [sys.executable, "-P", "-c", "import flagscale_perf"], cwd="/", capture_output=True
    ).returncode:
        raise PerfError(
            f"flagscale_perf is not installed in {sys.prefix}; run: {sys.executable} -m pip install -e DIRECTORY_OF_THE_CHECKOUT"
        )
    path = pth_path()
    if not is_enabled():
        temporary = path.with_suffix(".tmp")
        try:
            temporary.write_text(PTH_LINE, encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            raise PerfError(
                f"cannot write {path}: {error.strerror}; use an environment that you may write to"
            ) from None
    return path


def disable() -> Path | None:
    """Removes the file. Returns its path, or None if there was none. Raises PerfError."""
    path = pth_path()
    try:
        path.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PerfError(f"cannot remove {path}: {error.strerror}; remove it by hand") from None
    return path


def _is_true(text: str) -> bool:
    try:
        return parse_bool(text)
    except PerfError:
        return bool(text)  # a wrong value is refused later, by name
