"""Two versions of this package look at the same run with the same cache, at the same time: each shows its own
figures, never the other's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flagscale_perf.spine.jsonl import encode
from tests.fakes import make_header, make_phases, make_step

pytest.importorskip("duckdb")
REPO = Path(__file__).parents[2]
COPIES = ("this", "other")
# Of the same version number: in a column, in what reports say, and in what is folded; and a new field.
CHANGES = {
    "store/tables.py": ("header.session_id, header.host\n", 'header.session_id, f"{header.host} too"\n'),
    "spine/clock.py": ("NS_PER_MS = 1_000_000\n", "NS_PER_MS = 500_000\n"),
    "analysis/lake.py": (
        "    skipped_lines: int | None\n",
        "    skipped_lines: int | None\n    later: int = 7\n",
    ),
}
COMMANDS = (
    ["report", "run", "--format", "text"],
    ["runs", "run", "--format", "json"],
    ["query", "run", "select r.*, sum(iteration_ns) s from steps join runs r using (run_id) group by all"],
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in COPIES:
        shutil.copytree(REPO / "flagscale_perf", tmp_path / name / "flagscale_perf")
        kept = tmp_path / name / "flagscale_perf/store/kept.py"
        kept.write_text(kept.read_text().replace("MIN_BYTES = 64 << 20", "MIN_BYTES = 1"))
        rows = tmp_path / name / "flagscale_perf/store/rows.py"
        rows.write_text(rows.read_text().replace("MIN_BYTES = 4 << 20", "MIN_BYTES = 1"))
    for name, (before, after) in CHANGES.items():
        path = tmp_path / "other/flagscale_perf" / name
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after))
    (tmp_path / "run").mkdir()
    return tmp_path


def grow(place: Path, first: int, last: int) -> None:
    """The run file is old: else its times prove nothing, and little is kept."""
    path = place / "run/perf_records_20240129_103000.jsonl"
    records = [
        encode(each) for number in range(first, last) for each in (make_phases(number), make_step(number))
    ]
    with path.open("ab") as file:
        file.write(b"".join([encode(make_header())] * (first == 1) + records))
    os.utime(path, (1e9, 1e9))


def type_(place: Path, copy: str, *words: str) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": str(place / copy), "XDG_CACHE_HOME": str(place / "home")}
    command = [sys.executable, "-m", "flagscale_perf", *words]
    return subprocess.Popen(command, cwd=place, env=env, text=True, stdout=subprocess.PIPE)


def said(typed: subprocess.Popen[str]) -> str:
    out, _ = typed.communicate(timeout=120)
    assert typed.returncode == 0, out
    return out


def outcomes(place: Path, *more: str) -> Iterator[tuple[list[str], list[str]]]:
    """What either copy says to each command, at the same time."""
    for words in COMMANDS:
        yield words, [said(typed) for typed in [type_(place, copy, *words, *more) for copy in COPIES]]


def test_neither_shows_what_the_other_has_kept(place: Path) -> None:
    for begin in (1, 40):
        grow(place, begin, begin + 40)
        expected = list(outcomes(place, "--no-cache"))
        assert all(this != other for words, (this, other) in expected if words[0] != "runs")
        for _ in range(2):
            assert list(outcomes(place)) == expected
    assert list((place / "run/cache").rglob("*.parquet"))
