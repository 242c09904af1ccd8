"""What the engines have in common: where the tables are, the period that is asked for, and how answers are handed back.
Nothing here knows of flagscale_perf: this is all that a program of yours needs to know, too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from glob import glob
from pathlib import Path
from time import monotonic
from typing import Any

# Unix time: the fleet's second to fifth week
PERIOD_WALL_NS = (1_778_198_400_000_000_000, 1_780_617_600_000_000_000)
Rows = list[list[Any]]


def parts(directory: str, kind: str) -> list[str]:
    """The tables of one kind below a directory. The columns `run_id`, `session_id` and `host` are in them, too, so
    nothing has to be taken from their paths.
    """
    return sorted(glob(f"{glob_free(directory)}/**/cache/kind={kind}/host=*/part=*.parquet", recursive=True))


def glob_free(directory: str) -> str:
    """The directory as a pattern that means it alone."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in directory)


def answer(questions: Mapping[str, Callable[[], Rows]], path: Path) -> None:
    """Asks each, and writes rows and seconds as JSON, by the question's name."""
    found = {}
    for name, ask in questions.items():
        begin = monotonic()
        rows = ask()
        found[name] = {"rows": rows, "seconds": monotonic() - begin}
        print(f"{name}: {len(rows)} rows", file=sys.stderr)
    path.write_text(json.dumps(found), encoding="utf-8")
