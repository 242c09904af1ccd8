"""The jobs among the sessions below a directory: a leading session each, and what was recorded beside it."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import attrgetter
from pathlib import Path

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.instrument import installed, load
from flagscale_perf.analysis.listed import Row, read_row, with_rows
from flagscale_perf.analysis.listing import Listing
from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.whole import Stretch, stretch_of, whole_of


def as_jobs(found: Listing) -> Listing:
    """The listing with the leading session of each job alone, the others as its `members`."""
    near, members, taken = _Near(found.sessions), dict[Path, list[Session]](), set[Path]()
    for lead in sorted(found.sessions, key=_leads, reverse=True):
        if lead.path in taken:
            continue
        if beside := _beside(lead, [one for one in near.around(lead) if one.path not in taken]):
            members[lead.path] = beside
            taken.update(one.path for one in beside)
    leading = [one for one in found.sessions if one.path not in taken]
    return replace(found, sessions=leading, members=members)


class _Near:
    """Sessions by their directories and those above, where they are looked for by their time: there may be
    thousands in one.
    """

    def __init__(self, sessions: Sequence[Session]) -> None:
        self._sessions = sessions
        self._in: defaultdict[Path, list[int]] = defaultdict(list)  # their numbers
        self._own = set[Path]()  # directories with run files
        for number, one in enumerate(sessions):
            place = one.path.parent
            self._own.add(place)
            self._in[place].append(number)
            self._in[place.parent].append(number)
        self._leads = {
            place: Counter(_leads(sessions[number]) for number in numbers)
            for place, numbers in self._in.items()
        }
        self._stretches = dict[Path, tuple[list[Stretch], list[int], list[int]]]()

    def around(self, lead: Session) -> list[Session]:
        """Those that lasted when it did, in its directory and the one that it shares; none where all there
        lead jobs of their own, as then their ends need not be read.
        """
        places = [lead.path.parent, *self._shared(lead)]
        if not any(each in self._leads[place] for place in places for each in range(_leads(lead))):
            return []
        numbers = {number for place in places for number in self._meeting(place, stretch_of(lead))}
        return [one for one in map(self._sessions.__getitem__, sorted(numbers)) if one is not lead]

    def _shared(self, lead: Session) -> list[Path]:
        """The directory above, where it has no run file itself and those right below it are of one leading
        session at most: its sub directories are then what several instruments recorded of one job.
        """
        above = lead.path.parent.parent
        leading = sum(count for leads, count in self._leads[above].items() if leads >= _leads(lead))
        return [above] if above not in self._own and leading == 1 else []

    def _meeting(self, place: Path, own: Stretch) -> Iterator[int]:
        if place not in self._stretches:
            ordered = sorted((stretch_of(self._sessions[number]), number) for number in self._in[place])
            ends = accumulate((stretch.end_ns for stretch, _ in ordered), max)
            self._stretches[place] = [stretch for stretch, _ in ordered], [*ends], [n for _, n in ordered]
        stretches, latest, numbers = self._stretches[place]
        at = bisect_right(stretches, own.end_ns, key=attrgetter("begin_ns"))
        while at and latest[at - 1] >= own.begin_ns:
            at -= 1
            if own.meets(stretches[at]):
                yield numbers[at]


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


def _leads(session: Session) -> int:
    return load(session.instrument).leads


def _beside(lead: Session, near: Sequence[Session]) -> list[Session]:
    """Those of these that are of its job. Where it is alone with them, their records need not be read to know
    that.
    """
    if any(one.instrument == lead.instrument for one in near):
        whole = whole_of(lead, near)
        return [one.session for one in whole.members] if whole.lead is lead else []
    return [one for one in near if 0 <= _leads(one) < _leads(lead)]
