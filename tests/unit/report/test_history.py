"""All sessions as text, byte for byte."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.history import stitch
from flagscale_perf.report.history import render_history
from tests.golden import golden
from tests.unit.analysis.test_history import write_session


def test_a_kill_a_restart_and_a_file_that_is_none(tmp_path: Path) -> None:
    write_session(tmp_path, 30, 1, 14, ("killed", 15), loading_ms=100)
    write_session(tmp_path, 31, 11, 20, ("completed", 10), loading_ms=100)
    write_session(tmp_path, 32, 21, 20, ("exception \x1b[2J", 10))
    (tmp_path / "perf_records_20240129_110000.jsonl").write_bytes(b"")
    assert render_history(stitch(tmp_path)).replace(str(tmp_path), "RUN_DIR") == golden(
        "report_all_sessions.txt"
    )


def test_one_session_is_one(tmp_path: Path) -> None:
    write_session(tmp_path, 30, 1, 4, ("completed", 4))
    assert render_history(stitch(tmp_path)).startswith("1 session in ")
