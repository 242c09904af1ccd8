"""The jobs among the sessions below a directory: a leading session each, and what was recorded beside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.instrument import installed, load
from flagscale_perf.analysis.listed import Row, read_row, with_rows
from flagscale_perf.analysis.listing import Listing
from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.whole import stretch_of, whole_of


def as_jobs(found: Listing) -> Listing:
    """The listing with the leading session of each job alone, the others as its `members`."""
    near: defaultdict[Path, list[Session]] = defaultdict(list)
    for one in found.sessions:
        near[one.path.parent].append(one)
        near[one.path.parent.parent].append(one)
    members: dict[Path, list[Session]] = {}
    taken = set[Path]()
    for lead in sorted(found.sessions, key=lambda one: load(one.instrument).leads, reverse=True):
        if lead.path in taken:
            continue
        places = [lead.path.parent, *_shared(lead, near)]
        around = [
            *{one.path: one for place in places for one in near[place] if one.path not in taken}.values()
        ]
        if _has_other_kinds(lead, around):
            beside = _beside(lead, around)
            members |= {lead.path: beside} if beside else {}
            taken.update(one.path for one in beside)
    leading = [one for one in found.sessions if one.path not in taken]
    return replace(found, sessions=leading, members=members)


def _shared(lead: Session, near: Mapping[Path, Sequence[Session]]) -> list[Path]:
    """The directory above, where it has no run file itself and those right below it are of one leading
    session at most: its sub directories are then what several instruments recorded of one job.
    """
    above = lead.path.parent.parent
    around, own = near[above], load(lead.instrument).leads
    is_shared = all(one.path.parent != above for one in around)
    others = [one for one in around if one is not lead and load(one.instrument).leads >= own]
    return [above] if is_shared and not others else []


def report_of(found: Listing, is_all_read: bool) -> Report:
    """Jobs by the list of their instrument, and below it those of instruments that have none."""
    listed: list[Session] = []
    rows: list[Row] = []
    for session in found.sessions:
        if load(session.instrument).offers("runs"):
            listed.append(session)
        elif row := read_row(session, found, is_all_read):
            rows.append(row)
    if rows and not listed:
        return with_rows(None, rows, found)
    names = [session.instrument for session in listed] or installed()
    report = next(
        instrument.runs(replace(found, sessions=listed), is_all_read)
        for instrument in map(load, names)
        if instrument.offers("runs")
    )
    return with_rows(report, rows, found) if rows else report


def _has_other_kinds(lead: Session, around: Sequence[Session]) -> bool:
    own = load(lead.instrument).leads
    return any(own > load(one.instrument).leads >= 0 for one in around)


def _beside(lead: Session, around: Sequence[Session]) -> list[Session]:
    """Sessions of its job. Where it is alone with them, their records need not be read to know that."""
    own = stretch_of(lead)
    near = [one for one in around if one is not lead and own.meets(stretch_of(one))]
    if any(one.instrument == lead.instrument for one in near):
        whole = whole_of(lead, near)
        return [one.session for one in whole.members] if whole.lead is lead else []
    leads = load(lead.instrument).leads
    return [one for one in near if 0 <= load(one.instrument).leads < leads]
