"""What `flagscale-perf enable` adds to a Python environment: hooks for training workers, and for processes
whose environment switches the tracing of a queue on; nothing for others.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from flagscale_perf.hosts.command_line import ENABLE_FLAG, ENABLE_VARIABLE, worker_argv
from flagscale_perf.spine.errors import PerfError

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
    """Called by the .pth line: installs the hooks if this process is a training worker, at most once."""
    argv = worker_argv(sys.orig_argv, os.environ)
    if argv is None or "flagscale_perf.hosts.install" in sys.modules:  # `site` may process a directory twice
        return
    from flagscale_perf.hosts.install import Installation  # not at the top: only a worker pays for it

    Installation(argv, os.environ).install().report_at_exit()


def pth_path() -> Path:
    """Where the file is in this Python environment."""
    return Path(sysconfig.get_path("purelib")) / PTH_NAME


def is_enabled() -> bool:
    """Whether the file is there with this version's content."""
    path = pth_path()
    return path.is_file() and path.read_text(encoding="utf-8") == PTH_LINE


def enable() -> Path:
    """Writes the file; does nothing if it is there. Returns its path. Raises PerfError."""
    # Another process and directory, for here it may be found only because it is in the working directory.
    check = [sys.executable, "-P", "-c", "import flagscale_perf"]
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
