"""The file that `flagscale-perf enable` adds to a Python environment. It hooks training workers and processes
whose environment switches the tracing of a queue on; it does nothing in others.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flagscale_perf.hosts.asked import ENABLE_FLAG, ENABLE_VARIABLE, asks_for_monitor
from flagscale_perf.spine.errors import PerfError

_LONG_WITH_VALUE = ("--check-hash-based-pycs",)
# Packages in whose modules the hooks are; of the others, which much else imports, the modules that train.
_HOSTS = (
    *("megatron", "flagscale", "transformers.trainer"),
    *("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"),
)
# They start the training in processes of their own, and have its flags on their command line: commands, and
# what `python -m` takes for them, by its first names. `flagscale_perf.launch` installs the hooks itself.
LAUNCHERS = frozenset(
    {
        "torchrun",
        "accelerate",
        "deepspeed",
        "flagscale",
        "flagscale-perf",
        "flagscale_perf",
        "horovodrun",
        "ray",
    }
    | {"pip", "torch.distributed.run", "torch.distributed.launch", "torch.distributed.launcher"}
)
_TRAININGS = "flagscale.train."  # modules of a launcher's package that train themselves
_LAUNCHER_FILES = ("torch/distributed/run.py", "torch/distributed/launch.py")
# By name: tracing is a room of its own, which this one must not import.
TRACE_MODULE = "flagscale_perf.hosts.transfer_queue.install"
TRACE_VARIABLES = ("TQ_TRACE_ENABLED", "TQ_TRACE_DETAIL_ENABLED")
PTH_NAME = "flagscale_perf_autostart.pth"
# Executed whenever a Python of the environment starts, hence the test before anything of ours is imported.
PTH_LINE = (
    f'import sys, os; (any(w.startswith("{ENABLE_FLAG}") for w in sys.orig_argv)'
    f' or "{ENABLE_VARIABLE}" in os.environ)'
    ' and __import__("flagscale_perf.hosts.autostart").hosts.autostart.start()\n'
    f'import os; any(os.environ.get(v, "0") not in ("", "0") for v in {TRACE_VARIABLES})'
    f' and __import__("{TRACE_MODULE}", fromlist=["_"]).from_environment()\n'
)


def start() -> None:
    """Called by the .pth line: the hooks are installed if this process is a training worker, at most once."""
    argv = worker_argv(sys.orig_argv, os.environ)
    # `site` may process a directory twice
    if argv is not None and not any(isinstance(finder, _FirstImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _FirstImport(argv))


class _FirstImport:
    """A finder that installs the hooks when the host is first imported: how a training is started differs,
    and other programs, which the same variable reaches, never import it.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = argv

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        """The finder's protocol: what the hooks' own finder says of the host; None for all others."""
        if name not in _HOSTS or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        try:
            from flagscale_perf.hosts.install import Installation  # not at the top: only a worker pays for it

            Installation(self._argv, os.environ).install().report_at_exit()
        except Exception as error:  # ours, inside the host's import statement
            print(f"flagscale_perf: hooks not installed: {error!r} (training goes on)", file=sys.stderr)
            return None
        return sys.meta_path[0].find_spec(name, path, target)


def pth_path() -> Path:
    """The file's path in this Python environment."""
    return Path(sysconfig.get_path("purelib")) / PTH_NAME


def is_enabled() -> bool:
    """Whether the file is there with this version's content."""
    path = pth_path()
    return path.is_file() and path.read_text(encoding="utf-8") == PTH_LINE


def enable() -> Path:
    """Writes the file; does nothing if it is there. Returns its path. Raises PerfError."""
    # Another process and directory, for here it may be found only because it is in the working directory.
    check = [sys.executable, "-c", "import flagscale_perf"]
    if subprocess.run(check, cwd="/", capture_output=True).returncode:
        raise PerfError(
            f"flagscale_perf is not installed in {sys.prefix}; run: {sys.executable} -m pip install -e"
            " DIRECTORY_OF_THE_CHECKOUT"
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


def worker_argv(orig_argv: Sequence[str], environ: Mapping[str, str]) -> list[str] | None:
    """The program's arguments if the command line runs a script, a module (`-m`) or code (`-c`) that asks for
    the monitor, else None.

    `LAUNCHERS` carry the flag only for others, and what multiprocessing starts has its parent's variables.
    """
    kind, program, words = _program(orig_argv[1:])
    names = {os.path.basename(program)}
    if kind == "m":
        counts = () if program.startswith(_TRAININGS) else (1, 3)
        names = {".".join(program.split(".")[:count]) for count in counts}
    if not program or names & LAUNCHERS or program.endswith(_LAUNCHER_FILES):
        return None
    if kind == "c" and "multiprocessing" in program:
        return None
    return words if asks_for_monitor(words, environ) else None


def _program(words: Sequence[str]) -> tuple[str, str, list[str]]:
    """What a Python runs: "m" and a module, "c" and code, or "" and a script; "" for none. And its words."""
    words = list(words)
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in _LONG_WITH_VALUE:
            del words[:1]
        if option.startswith("--"):
            continue
        for place, letter in enumerate(option[1:], 2):  # as in -um MODULE, or -mMODULE
            if letter in "cmWX":
                value = option[place:] or (words.pop(0) if words else "")
                if letter in "cm":
                    return letter, value, words
                break
    return "", words[0] if words else "", words[1:]
