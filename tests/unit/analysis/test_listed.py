"""Sessions of other instruments in a list of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis import listed
from flagscale_perf.analysis.blocks import Findings, Quantity, Report, Tile
from flagscale_perf.analysis.listed import read_session, with_sessions
from flagscale_perf.analysis.runs import Found
from flagscale_perf.report.text import render
from flagscale_perf.spine.errors import PerfError


class Nothing:
    """Content of a report."""

    def as_dict(self) -> dict[str, int]:
        return {"kept": 1}


def report_of(path: Path) -> Report:
    return Report(
        "a title",
        [],
        [],
        Nothing(),
        subject="a small thing",
        state="completed",
        tiles=[Tile("a step", Quantity(12.0, "ms")), Tile("share", ("about ", Quantity(0.5, "share")))],
        findings=Findings([], []),
    )


def found_in(directory: Path) -> Found:
    path = directory / "below" / "perf_records_20240129_103000.jsonl"
    path.parent.mkdir()
    path.write_bytes(b"12345")
    return Found(directory, [path])


def test_a_line_a_session(tmp_path: Path) -> None:
    found = found_in(tmp_path)
    session = read_session(found.paths[0], found, "profile", report_of, False)
    assert session is not None
    made = with_sessions(None, [session], found)
    assert render(made).splitlines()[3:] == [
        "  session          instrument  end        findings",
        "  20240129_103000  profile     completed         0",
        "    below: a small thing; a step 12.0 ms; share about 50.0 %",
    ]
    assert made.content.as_dict()["sessions"] == [
        {
            "directory": "below",
            "session_id": "20240129_103000",
            "instrument": "profile",
            "end": "completed",
            "findings": 0,
            "first_finding": None,
            "figures": {"a step": {"value": 12.0, "unit": "ms"}},
        }
    ]
    assert list(made.rows)[1] == ("below", "20240129_103000", "profile", "completed", 0, None)


def test_a_list_that_is_there_keeps_what_it_has(tmp_path: Path) -> None:
    found = found_in(tmp_path)
    made = with_sessions(report_of(tmp_path), [], found)
    assert made.content.as_dict() == {"kept": 1, "sessions": []}
    assert "No session could be read." in render(made)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    found = found_in(tmp_path)

    def refused(path: Path) -> Report:
        raise PerfError("damaged")

    assert read_session(found.paths[0], found, "profile", refused, False) is None
    assert [(one.path, one.reason) for one in found.unread] == [
        ("below/perf_records_20240129_103000.jsonl", "damaged")
    ]
    assert "damaged" in render(with_sessions(None, [], found))


def test_a_long_file_is_read_when_all_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed, "LONG_BYTES", 4)
    found = found_in(tmp_path)
    session = read_session(found.paths[0], found, "rpc", report_of, False)
    assert session is not None and session.report is None
    assert "--read-all reads it" in render(with_sessions(None, [session], found))
    whole = read_session(found.paths[0], found, "rpc", report_of, True)
    assert whole is not None and whole.report is not None
