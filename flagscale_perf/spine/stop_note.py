"""The note by which a launcher says that a job ends because its user stopped it.

A signal does not say who sent it. So the launcher names a file in the environment of the job it starts, and
writes that file before it sends the signal; who has to say why the job ended looks for it afterwards. A job
that is started in another way has no such variable, and cannot take an old note for its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

VARIABLE = "FLAGSCALE_PERF_STOP_NOTE"


def leave(path: str) -> None:
    """Writes the note. Raises OSError."""
    with open(path, "w", encoding="ascii") as file:
        file.write("stopped by the user\n")


def is_left(environ: Mapping[str, str]) -> bool:
    """Whether the user has stopped the job that has this environment."""
    path = environ.get(VARIABLE)
    return bool(path) and os.path.exists(str(path))
