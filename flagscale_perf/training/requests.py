"""What a command asks of a live run: a file beside the run file, which its writer takes away."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from flagscale_perf.spine.files import open_regular

STEPS, STACKS, PROFILE = KINDS = ("steps", "stacks", "profile")  # what is asked for: the key of a request
_MAX_BYTES = 1024


class RequestFile:
    """The writer's end."""

    def __init__(self, path: Path) -> None:
        """`path`: see `spine.session.request_name`."""
        self._path = path

    def take(self, kind: str) -> Any:
        """What is asked for, of one of the `KINDS`; removes the request, by which its maker knows that it was
        read. None where there is none, or one of another kind, which stays. What is no request is removed.
        """
        try:
            fd = open_regular(self._path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        with open(fd, "rb") as file:
            found = file.read(_MAX_BYTES)
        try:
            content = json.loads(found)
        except (ValueError, RecursionError):
            content = None
        is_other = isinstance(content, dict) and any(each in content for each in KINDS if each != kind)
        if is_other:
            return None
        with contextlib.suppress(OSError):
            self._path.unlink()
        return content.get(kind) if isinstance(content, dict) else None
