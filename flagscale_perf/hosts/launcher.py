"""`python -m flagscale_perf.launch PROGRAM ARGS...`, also under torchrun's `-m`."""

from __future__ import annotations

import os
import runpy
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from flagscale_perf.hosts.autostart import LAUNCHERS
from flagscale_perf.hosts.install import Installation
from flagscale_perf.spine.errors import PerfError

USAGE = "usage: python -m flagscale_perf.launch SCRIPT ARGS..., or -m MODULE ARGS..."


def main(argv: Sequence[str]) -> int:
    """Runs the script `argv[0]` as `python SCRIPT` would, with hooks; `-m MODULE` as `python -m MODULE`, and
    the name of a command that is written in Python as a shell would. Returns 2 for a wrong command line.
    """
    if argv and argv[0] in ("-h", "--help"):
        print(f"{USAGE}\nRuns an unmodified training script with the monitor's hooks; ARGS go to the script.")
        return 0
    try:
        run(argv)
    except PerfError as error:
        print(f"flagscale_perf: error: {error}", file=sys.stderr)
        return 2
    return 0


def run(argv: Sequence[str]) -> None:
    """Like `main`, but raises PerfError for a wrong command line."""
    is_module = bool(argv) and argv[0] == "-m"
    words = list(argv[is_module:])
    if words and argv[0] == "-c":
        raise PerfError("-c: code has no file that a worker could import; write it into a script")
    if not words or words[0].startswith("-"):
        raise PerfError(f"no training script given; {USAGE}")
    if words[0] in LAUNCHERS:
        raise PerfError(
            f"{words[0]!r} starts the training in processes of its own, where the hooks must be; write"
            f" {words[0]} ... -m flagscale_perf.launch SCRIPT ARGS..."
        )
    script = None if is_module else _script(words[0])
    installation = Installation(words[1:], os.environ).install()
    try:
        if script is None:
            _run_module(words)
        else:
            _run_script(script, words)
    except SystemExit as end:
        if end.code in (None, 0):
            installation.report_if_unused()
        raise
    installation.report_if_unused()


def _run_script(script: str, words: Sequence[str]) -> None:
    sys.argv = list(words)
    # With -P or PYTHONSAFEPATH Python puts neither our directory first nor the script's, which is that of the
    # file behind a link.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    runpy.run_path(script, run_name="__main__")


def _run_module(words: Sequence[str]) -> None:
    name = words[0]
    try:
        is_there = find_spec(name) is not None
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        is_there = False
    if not is_there:
        raise PerfError(f"training module {name!r} is not found; give its name as in `import`, from sys.path")
    sys.argv = list(words)
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _script(name: str) -> str:
    """The file of a script, or of a command on PATH, that Python can run."""
    found = name if os.path.isfile(name) else None
    if found is None and os.sep not in name:
        found = shutil.which(name)
    if found is None:
        raise PerfError(f"training script {name!r} is not a file; give its path from {os.getcwd()}")
    with open(found, "rb") as file:
        begin = file.read(512)
    is_script = begin.startswith(b"#!")  # installers write a second line where the first would be too long
    if begin.startswith(b"\x7fELF") or (is_script and b"python" not in b"".join(begin.splitlines()[:2])):
        raise PerfError(f"{found!r} is not written in Python; give the Python script that it runs")
    return found
