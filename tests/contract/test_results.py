"""A result of a benchmark has its date, command, machine and code; one whose code has changed is listed."""

from __future__ import annotations

import datetime
import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import provenance
from tests.conftest import REPO

PROGRAMS = [
    path
    for path in sorted((REPO / "benchmarks").glob("*.py"))
    if re.search(r"^def main\(", path.read_text("utf-8"), re.MULTILINE) and path.name != "provenance.py"
]
CALL = re.compile(r"\bhead\(((?:\s*\"[\w./]+\",?)+)\s*\)")


@pytest.mark.parametrize("path", provenance.results(), ids=lambda path: path.name)
def test_a_result_has_its_date_command_machine_and_code(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = {field: re.findall(rf"^{field} +(.+)$", text, re.MULTILINE) for field in provenance.FIELDS}
    assert all(found.values()), found
    assert all(datetime.date.fromisoformat(date.split()[0]) for date in found["date"])
    assert [code for code in found["code"] if not re.fullmatch(r"([\w./]+ [0-9a-f]{12}(, )?)+", code)] == []


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_a_benchmark_prints_that_head_with_rooms_that_are_there(path: Path) -> None:
    calls = CALL.findall(path.read_text("utf-8"))
    rooms = re.findall(r'"([\w./]+)"', "".join(calls))
    assert len(calls) == 1
    assert [r for r in rooms if not any((REPO / top / r).exists() for top in ("flagscale_perf", ""))] == []


def test_code_that_changed_is_seen_and_words_are_not(tmp_path: Path) -> None:
    room = tmp_path / "flagscale_perf/spine"
    room.mkdir(parents=True)
    module = room / "ring.py"
    module.write_text('"""A ring."""\n\n\ndef f():\n    """One."""\n    return 1\n')
    result = f"date     2026-11-26\ncode     spine {provenance.fingerprint('spine', tmp_path)}\n\n3 us\n"
    module.write_text('"""Rings."""\n\n\ndef f():\n    """The first\n    one."""\n    # why\n    return 1\n')
    assert provenance.changed(result, tmp_path) == []
    module.write_text('"""A ring."""\n\n\ndef f():\n    """One."""\n    return 2\n')
    assert provenance.changed(result, tmp_path) == ["spine"]
    module.unlink()
    assert provenance.changed(result, tmp_path) == ["spine"]
    nothing = f"code     spine {hashlib.sha256().hexdigest()[:12]}\n"
    assert provenance.changed(nothing, tmp_path) == ["spine"]


def test_the_head_is_that_of_the_program_that_runs() -> None:
    program = "from benchmarks.provenance import head; print(head('spine', 'perf_metrics.py'))"
    words = [sys.executable, "-c", program, "--steps", "3"]
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, check=True)
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert tuple(lines) == provenance.FIELDS
    assert lines["command"].startswith("python -c ") and lines["command"].endswith(" --steps 3")
    assert provenance.changed(done.stdout) == []
