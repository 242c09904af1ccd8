"""Sessions of instruments that have no list of their own, by what their reports say: a line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from flagscale_perf.analysis.blocks import Cell, Content, Note, Part, Quantity, Report, Section, Table
from flagscale_perf.analysis.instrument import load
from flagscale_perf.analysis.job_report import findings_of
from flagscale_perf.analysis.listing import Listing
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.store import state
from flagscale_perf.store.runs import LONG_BYTES, Unread

HEAD = ("session", "instrument", "end", "findings")
CSV_HEAD = ("directory", "session_id", "instrument", "end", "findings", "first_finding")


@dataclass(frozen=True)
class Row:
    """One of them.

    Attributes:
        directory: of its files, as seen from where the list was made; "" for that itself.
        session_id, instrument: of it.
        report: of it; None where its files are long and were not read.
    """

    directory: str
    session_id: str
    instrument: str
    report: Report | None

    @property
    def findings(self) -> int | None:
        """How many; None where they were not looked for."""
        found = None if self.report is None else self.report.findings
        return None if found is None else len(found.found)

    @property
    def first_finding(self) -> str | None:
        """Title of the costliest finding."""
        found = None if self.report is None else self.report.findings
        return found.found[0].title if found is not None and found.found else None

    @property
    def values(self) -> Sequence[Any]:
        """Raw values by `CSV_HEAD`."""
        end = None if self.report is None else self.report.state
        return (self.directory, self.session_id, self.instrument, end, self.findings, self.first_finding)

    def as_dict(self) -> dict[str, Any]:
        """As data ready for JSON; of the figures those that are one number, by their labels."""
        tiles = () if self.report is None else self.report.tiles
        return dict(zip(CSV_HEAD, self.values, strict=True)) | {
            "figures": {
                tile.label: {"value": tile.value.value, "unit": tile.value.unit}
                for tile in tiles
                if isinstance(tile.value, Quantity)
            }
        }


@dataclass(frozen=True)
class _Content:
    listed: Content | None
    rows: Sequence[Row]
    found: Listing

    def as_dict(self) -> Mapping[str, Any]:
        """The list's own content, and these sessions."""
        unread = [vars(one) for one in self.found.unread]
        begin = {"directory": str(self.found.directory), "runs": [], "unread": unread}
        listed = begin if self.listed is None else dict(self.listed.as_dict())
        return listed | {"sessions": [one.as_dict() for one in self.rows]}


def read_row(session: Session, found: Listing, is_all_read: bool) -> Row | None:
    """The row of a session; None, and a line in `found.unread`, where it cannot be read."""
    try:
        job = found.job(session)
        is_read = is_all_read or all(one.size_bytes <= LONG_BYTES for one in job)
        text, _ = found.row(session, lambda: (_text_of(job), None)) if is_read else (None, None)
        made = None if text is None else state.made(text)
    except PerfError as error:
        found.leave_out(session.path, error)
        return None
    return Row(found.place(session), session.header.session_id, session.instrument, made)


def _text_of(job: Sequence[Session]) -> str:
    """What a row needs of the report."""
    session, *beside = job
    report, nothing = load(session.instrument).report(session), cast(Content, None)
    if beside and report.findings is not None:
        report = replace(report, findings=replace(report.findings, found=findings_of(session, beside)))
    return state.text_of(replace(report, facts=(), sections=(), content=nothing, rows=()))


def not_read(unread: Sequence[Unread]) -> Section:
    """What a list leaves out, and why; without blocks where that is nothing."""
    table = Table(("not read",), [(one.path,) for one in unread], notes=[one.reason for one in unread])
    return Section("unread", "Not read", "", [table] if unread else [])


def with_rows(listed: Report | None, rows: Sequence[Row], found: Listing) -> Report:
    """The list of an instrument that has one, None where there is no such run, and these sessions below."""
    sections = [Section("sessions", "Sessions", "Sessions of other instruments", [_table(rows)])]
    content = _Content(None if listed is None else listed.content, rows, found)
    if listed is None:
        count = len(rows)
        return Report(
            title=f"{count:,} session{'s' * (count != 1)} in {found.directory}",
            facts=[],
            sections=[*sections, *([not_read(found.unread)] if found.unread else [])],
            content=content,
            rows=[CSV_HEAD, *(one.values for one in rows)],
        )
    raw = [one.values for one in rows]
    return replace(
        listed, sections=[*listed.sections, *sections], content=content, rows=_below(listed.rows, raw)
    )


def _below(listed: Iterable[Sequence[Any]], rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Rows by `CSV_HEAD` below those of another list, in the columns that both have."""
    head, *others = [*listed] or [()]
    if CSV_HEAD[0] not in head:  # a list without rows, or not of sessions
        return [*listed]
    names = [{"end": "end_reason"}.get(name, name) for name in CSV_HEAD]
    known = (dict(zip(names, row, strict=True)) for row in rows)
    return [head, *others, *([one.get(str(name)) for name in head] for one in known)]


def _table(found: Sequence[Row]) -> Table | Note:
    if not found:
        return Note("No session could be read.")
    rows: list[Sequence[Cell]] = [
        (
            one.session_id,
            one.instrument,
            "not read" if one.report is None else one.report.state or None,
            Quantity(one.findings),
        )
        for one in found
    ]
    return Table(HEAD, rows, 1, notes=[_note(one) for one in found])


def _note(one: Row) -> Cell:
    parts: list[Part] = [f"{one.directory}: " if one.directory else ""]
    if one.report is None:
        return (*parts, f"its file is above {LONG_BYTES >> 20} MiB; --read-all reads it")
    about = one.report.subject or one.report.title
    parts += list(about) if isinstance(about, tuple) else [str(about or "")]
    for tile in one.report.tiles[:3]:
        if tile.value is not None:
            parts.append(f"; {tile.label} ")
            parts += list(tile.value) if isinstance(tile.value, tuple) else [tile.value]
    if one.first_finding is not None:
        parts.append(f"; first finding: {one.first_finding}")
    if one.report.reading is not None:
        parts += [f"; {remark}" for remark in one.report.reading.remarks]
    return tuple(parts)
