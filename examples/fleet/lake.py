"""What these programs have in common, and all that one of yours needs to know: where the tables are. No
flagscale_perf is needed to read them.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from glob import escape, glob
from pathlib import Path
from time import monotonic
from typing import Any

PERIOD_WALL_NS = (1_778_198_400_000_000_000, 1_780_617_600_000_000_000)  # Unix time: 8 May to 5 June 2026
Rows = list[list[Any]]


def parts(directory: str, kind: str) -> list[str]:
    """The files with the table of one kind. Whose row it is (`run_id`, `session_id`, `host`) is in each row,
    so that nothing has to be taken from a path.
    """
    return sorted(glob(f"{escape(directory)}/**/cache/kind={kind}/host=*/part=*.parquet", recursive=True))


def runs(directory: str, *kinds: str) -> list[dict[str, list[str]]]:
    """For each run its files by kind. A run that was sealed while it went on has several of each, which
    differ in what is behind the name's last hyphen.
    """
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: {kind: [] for kind in kinds})
    for kind in kinds:
        for path in parts(directory, kind):
            found[re.sub(r"/kind=[^/]+/|-[^-/]*$", "/", path)][kind].append(path)
    return [*found.values()]


def answer(questions: Mapping[str, Callable[[], Rows]], path: Path) -> None:
    """Asks each, and writes rows and seconds as JSON, by the question's name."""
    found = {}
    for name, ask in questions.items():
        begin = monotonic()
        rows = ask()
        found[name] = {"rows": rows, "seconds": monotonic() - begin}
        print(f"{path.stem}, {name}: {len(rows)} rows", file=sys.stderr)
    path.write_text(json.dumps(found), encoding="utf-8")
