"""The section with what TransferQueue's storage units say."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.blocks import Note, Quantity, Table
from flagscale_perf.trace.analysis.server import FILE, section_of
from flagscale_perf.trace.analysis.sums import Sums
from flagscale_perf.trace.records import Kind
from tests.unit.trace.analysis.test_server_metrics import PAGE
from tests.unit.trace.export.sample import operation


def sums() -> Sums:
    """20 puts of 20 ms."""
    made = Sums()
    for number in range(20):
        made.add_operation(operation(Kind.PUT, number + 1, 0, 20_000_000), "driver 1", "", "")
    return made


def test_both_sides_of_a_put(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(PAGE)
    section = section_of(tmp_path / "perf_records_20260102_030405.jsonl", sums())
    assert section is not None
    table, note = section.blocks
    assert isinstance(table, Table) and isinstance(note, Note)
    assert table.rows == [
        (
            "put",
            Quantity(20.0, "", 3),
            Quantity(2.0, "", 3),
            "unit_b",
            Quantity(5.0, "", 3),
            Quantity(2.0, "", 2),
            Quantity(0.75, "share", 1),
        ),
    ]


def test_without_the_file_there_is_no_section(tmp_path: Path) -> None:
    assert section_of(tmp_path / "perf_records_20260102_030405.jsonl", sums()) is None


def test_a_page_that_cannot_be_read_is_said_and_nothing_else_is_lost(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("<html>\n")
    section = section_of(tmp_path / "perf_records_20260102_030405.jsonl", sums())
    assert section is not None
    (note,) = section.blocks
    assert isinstance(note, Note) and "has no metrics in Prometheus' format" in note.text


def test_other_metrics_are_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("# TYPE up gauge\nup 1\n")
    section = section_of(tmp_path / "perf_records_20260102_030405.jsonl", sums())
    assert section is not None
    assert section.blocks == [Note(f"{FILE} has no request of these operations")]
