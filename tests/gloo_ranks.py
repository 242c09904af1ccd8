"""Starts ranks of a program that stands beside the tests, warm where that is possible, and reads what each
has written.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.processes import warm
from tests.processes.flagscale import warm_python

REPO = Path(__file__).parents[1]


def two_ranks(module: str, directory: Path, *args: str, timeout_s: float = 240) -> list[dict[str, Any]]:
    """What ranks 0 and 1 of `python -m module DIRECTORY RANK ARGS` left in `rankN.json`."""
    return some_ranks(2, module, directory, *args, timeout_s=timeout_s)


def some_ranks(
    count: int, module: str, directory: Path, *args: str, timeout_s: float = 240
) -> list[dict[str, Any]]:
    """The same of so many ranks."""
    started = [
        subprocess.Popen(
            warm_python("-m", module, directory, str(rank), *args),
            cwd=REPO,
            env=os.environ | {"OMP_NUM_THREADS": warm.THREADS, warm.SOCKET: warm.address()},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        said = [rank.communicate(timeout=timeout_s)[0] for rank in started]
    finally:
        for rank in started:
            rank.kill()
            rank.communicate()
    for rank, text in zip(started, said, strict=True):
        assert rank.returncode == 0, text
    return [json.loads((directory / f"rank{rank}.json").read_text()) for rank in range(count)]
