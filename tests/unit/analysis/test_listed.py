"""Sessions of other instruments in a list of runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from flagscale_perf.analysis import listed
from flagscale_perf.analysis.blocks import Findings, Quantity, Report, Tile
from flagscale_perf.analysis.job import sessions_below
from flagscale_perf.analysis.listed import read_row, with_rows
from flagscale_perf.analysis.listing import Listing
from flagscale_perf.analysis.session import Session
from flagscale_perf.report.text import render
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import encode
from tests.fakes import make_header


class Nothing:
    """Content of a report."""

    def as_dict(self) -> dict[str, int]:
        return {"kept": 1}


def report_of(session: Session | None) -> Report:
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


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Listing:
    """One session, of an instrument with this report."""
    path = tmp_path / "below" / "perf_records_20240129_103000.jsonl"
    path.parent.mkdir()
    path.write_bytes(encode(make_header()))
    monkeypatch.setattr(listed, "load", lambda name: SimpleNamespace(report=report_of))
    return sessions_below(tmp_path)


def test_a_line_a_session(found: Listing) -> None:
    row = read_row(found.sessions[0], found, False)
    assert row is not None
    made = with_rows(None, [row], found)
    assert render(made).splitlines()[3:] == [
        "  session          instrument  end        findings",
        "  20240129_103000  training    completed         0",
        "    below: a small thing; a step 12.0 ms; share about 50.0 %",
    ]
    assert made.content.as_dict()["sessions"] == [
        {
            "directory": "below",
            "session_id": "20240129_103000",
            "instrument": "training",
            "end": "completed",
            "findings": 0,
            "first_finding": None,
            "figures": {"a step": {"value": 12.0, "unit": "ms"}},
        }
    ]
    assert list(made.rows)[1] == ("below", "20240129_103000", "training", "completed", 0, None)


def test_a_list_that_is_there_keeps_what_it_has(found: Listing) -> None:
    made = with_rows(report_of(None), [], found)
    assert made.content.as_dict() == {"kept": 1, "sessions": []}
    assert "No session could be read." in render(made)


def test_what_cannot_be_read_is_named(found: Listing, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(session: Session) -> Report:
        raise PerfError("damaged")

    monkeypatch.setattr(listed, "load", lambda name: SimpleNamespace(report=refused))
    assert read_row(found.sessions[0], found, False) is None
    assert [(one.path, one.reason) for one in found.unread] == [
        ("below/perf_records_20240129_103000.jsonl", "damaged")
    ]
    assert "damaged" in render(with_rows(None, [], found))


def test_a_long_file_is_read_when_all_are(found: Listing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed, "LONG_BYTES", 4)
    row = read_row(found.sessions[0], found, False)
    assert row is not None and row.report is None
    assert "--read-all reads it" in render(with_rows(None, [row], found))
    whole = read_row(found.sessions[0], found, True)
    assert whole is not None and whole.report is not None
