"""Warm interpreters (tests/processes/warm.py) for the processes of a Ray: to import torch and transformers is
most of what a cold one does before its first task. Of TransferQueue, verl and this package nothing is
imported before the fork.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.processes import warm

REPO = Path(__file__).parents[2]
AGENT = Path(warm.__file__).with_name("agent.py")
# Read by every Python at its start.
SITE = """
import os, sys
words = [word for word in sys.orig_argv[1:] if word != "-u"]
is_worker = words[:1] and words[0].endswith("/default_worker.py")
if {socket!r} in os.environ and (is_worker or words[:2] == ["-m", "flagscale_perf.launch"]):
    os.execv(sys.executable, [sys.executable, {agent!r}, "as-it-is", *words])
"""


def environment(directory: Path) -> dict[str, str]:
    """Variables with which each worker of a Ray is a fork, and none is started before it is asked for.
    `directory`, where this writes a `sitecustomize.py`, and this package are on their path.
    """
    (directory / "sitecustomize.py").write_text(SITE.format(socket=warm.SOCKET, agent=str(AGENT)))
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = os.pathsep.join(filter(None, (str(directory), *given, str(REPO))))
    return {
        "PYTHONPATH": paths,
        warm.SOCKET: warm.address(),
        "OMP_NUM_THREADS": warm.THREADS,
        "RAY_prestart_worker_first_driver": "0",
    }


def python(*words: str | Path) -> list[str]:
    """`python WORDS...` as such a fork, with these variables."""
    return [sys.executable, str(AGENT), "as-it-is", *map(str, words)]
