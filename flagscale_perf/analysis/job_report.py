"""The report of a job: the leading session's, with one list of findings over all instruments, and what the
others have below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from flagscale_perf.analysis.blocks import (
    Block,
    Cell,
    Findings,
    HeatMap,
    Note,
    Pairs,
    Quantity,
    Report,
    Section,
    Series,
    Table,
    Tile,
    Waterfall,
)
from flagscale_perf.analysis.clocks import clock_of
from flagscale_perf.analysis.instrument import clocks_of, load
from flagscale_perf.analysis.laid import Spans, Steps, laid_in
from flagscale_perf.analysis.links import inside, linked
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.tree import Node, grafted, noted
from flagscale_perf.analysis.whole import Member, Whole, whole_of
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.language import DEPTH
from flagscale_perf.spine.units import duration

_ADDS_UP = (
    "Parts add up to what they are below, or leave a rest; 'meanwhile' goes on beside them. What"
    " was recorded in some steps only is their time, and not multiplied."
)
_Row: TypeAlias = tuple[Sequence[Cell], Cell]  # and what stands below it
_TILES = 4  # of each session beside the leading one


@dataclass(frozen=True)
class Part:
    """A session beside the leading one, with its report.

    Attributes:
        name: such as "profile"; with a number where there are several of its instrument.
        evidence: why it is of the job.
    """

    name: str
    session_id: str
    evidence: str
    is_on_clock: bool
    report: Report

    def as_dict(self) -> dict[str, Any]:
        """Where it is from, as data ready for JSON."""
        names = ("name", "session_id", "evidence", "is_on_clock")
        return {name.removesuffix("_id"): getattr(self, name) for name in names}


@dataclass(frozen=True)
class JobContent:
    """The leading session's content, and the job's.

    Attributes:
        lead: of the leading session, whose keys stay where they are without others.
        instrument, session_id: of it.
        parts: the other sessions.
        apart: sessions that are not of the job, and why.
        findings: of all of them.
        tree: where the time goes.
    """

    lead: Report
    instrument: str
    session_id: str
    parts: Sequence[Part]
    apart: Sequence[str]
    findings: Findings
    tree: Node

    def as_dict(self) -> Mapping[str, Any]:
        """The lead's dict with the job under "job"."""
        job = {
            "sessions": [
                {"name": self.instrument, "session": self.session_id, "evidence": "", "is_on_clock": True},
                *(one.as_dict() for one in self.parts),
            ],
            "reports": {one.name: one.report.content.as_dict() for one in self.parts},
            "apart": list(self.apart),
            "findings": [one.in_job() for one in self.findings.found],
            "tree": self.tree.as_dict(),
            "not_judged": list(self.findings.unjudged),
        }
        return {**self.lead.content.as_dict(), "job": job}


def report_of(whole: Whole) -> Report:
    """The report of a job; of one session alone, that session's. Raises PerfError where the leading session
    cannot be read.
    """
    lead = load(whole.lead.instrument).report(whole.lead)
    if not whole.members and not whole.apart:
        return lead
    whole, parts = _parts(whole)
    clocks = clocks_of(whole.sessions).lines()
    findings = _findings(whole, lead, parts)
    tree = _tree(whole, lead, parts, findings)
    return replace(
        lead,
        facts=[
            *_with(lead.facts, [*_joined(parts), *(("clock", line) for line in clocks)]),
            *(Note(line, "warn") for line in whole.apart),
        ],
        tiles=[*lead.tiles, *(tile for one in parts for tile in _tiles(one))],
        findings=findings,
        sections=[_drawn(tree), *lead.sections, *(section for one in parts for section in folded(one))],
        content=JobContent(
            lead, whole.lead.instrument, whole.lead.header.session_id, parts, whole.apart, findings, tree
        ),
        tree=tree,
    )


def findings_of(lead: Session, beside: Sequence[Session]) -> Sequence[Finding]:
    """Those that the report of a job has, by its sessions. Raises PerfError where the leading one cannot be
    read.
    """
    found = report_of(whole_of(lead, beside)).findings
    return [] if found is None else found.found


def _parts(whole: Whole) -> tuple[Whole, list[Part]]:
    """The other sessions' reports, and the job without those that cannot be read, which stand apart."""
    members, parts, unread, seen = list[Member](), list[Part](), list[str](), dict[str, int]()
    for member in whole.members:
        session, name = member.session, member.session.instrument
        try:
            report = load(name).report(session)
        except PerfError as error:
            unread.append(f"{name} session {session.header.session_id} cannot be read: {error}")
            continue
        members.append(member)
        seen[name] = seen.get(name, 0) + 1
        title = name if seen[name] == 1 else f"{name} {seen[name]}"
        parts.append(Part(title, session.header.session_id, member.evidence, member.is_on_clock, report))
    return replace(whole, members=members, apart=[*unread, *whole.apart]), parts


def _with(facts: Sequence[Pairs | Note], rows: Sequence[tuple[str, str]]) -> list[Pairs | Note]:
    """The facts of the leading session with these rows behind its first ones, in one column of names."""
    made = list(facts)
    for place, each in enumerate(made):
        if isinstance(each, Pairs):
            made[place] = Pairs([*each.rows, *rows])
            return made
    return [Pairs(rows), *made]


def _joined(parts: Sequence[Part]) -> list[tuple[str, str]]:
    return [
        (
            f"with {one.name}",
            f"session {one.session_id}: {one.evidence}; "
            f"{'on the same clock' if one.is_on_clock else 'on the clock of another machine'}",
        )
        for one in parts
    ]


def _findings(whole: Whole, lead: Report, parts: Sequence[Part]) -> Findings:
    named = [(whole.lead.instrument, lead.findings), *((one.name, one.report.findings) for one in parts)]
    known = [(name, each) for name, each in named if each is not None]
    found = [
        replace(one, instrument=name, base=one.base or _base(one, name != whole.lead.instrument))
        for name, each in known
        for one in each.found
    ]
    unjudged = [f"{name}: {phrase}" for name, each in known for phrase in each.unjudged]
    nothing = lead.findings.nothing if lead.findings is not None and not found else None
    return Findings(linked(found), unjudged, nothing)


def _base(finding: Finding, is_beside: bool) -> str:
    """What the share of a cost is of: of a session that does not lead, its own time."""
    if not is_beside or not finding.cost_share or finding.cost_s is None:
        return ""
    return f"its own {duration(finding.cost_s / finding.cost_share)}"


def _tree(whole: Whole, lead: Report, parts: Sequence[Part], found: Findings) -> Node:
    """The leading session's tree, with what the others know of its nodes, and what lies in its steps."""
    clocks = clocks_of(whole.sessions)
    tree = lead.tree or Node("wall time", (whole.stretch.end_ns - whole.stretch.begin_ns) / NS_PER_S)
    for part in parts:
        if part.report.tree is not None:
            tree = grafted(tree, part.report.tree)
    laid = []
    for member in whole.members:
        move = clocks.mover(clock_of(member.session.header))
        spans = Spans(load(member.session.instrument).laid(member.session), move)
        laid += [(member.session.instrument, spans)] if spans.marks else []
    beside = laid_in(Steps(load(whole.lead.instrument).steps(whole.lead)), laid) if laid else []
    for one in found.found:
        causes = [link.finding for link in one.links if link.is_cause and link.finding.where]
        if causes and one.phase:
            tree = noted(tree, one.phase, one.ranks, inside(causes[0]))
    return replace(tree, beside=beside).closed()


def _drawn(tree: Node) -> Section:
    """The tree as far as the leading session has it, and apart from it what was recorded in some steps."""
    rows, samples = list[_Row](), list[_Row]()

    def add(to: list[_Row], node: Node, depth: int, within: Node) -> None:
        share = None if node.dur_s is None or not within.dur_s else node.dur_s / within.dur_s
        cells = (DEPTH * depth + node.name, Quantity(node.dur_s, "s"), Quantity(share, "share"))
        to.append((cells, node.note or None))
        for one in node.parts:
            if one.is_sample:
                add(samples, replace(one, name=f"{node.name} {one.name}"), 0, one)
            add(to, replace(one, parts=()) if one.is_sample else one, depth + 1, within)
        for one in node.beside:
            add(to, replace(one, name=f"in steps, meanwhile: {one.name}"), depth + 1, within)

    add(rows, tree, 0, tree)
    blocks: list[Block] = [_table(rows), Note(_ADDS_UP)]
    if samples:
        blocks.append(_table(samples, "What was recorded in some steps only, by module and operator"))
    return Section("tree", "Tree", "Where the time goes", blocks, on_screen=True)


def _table(rows: Sequence[_Row], title: str = "") -> Table:
    cells, notes = [row for row, _ in rows], [note for _, note in rows]
    return Table(("", "time", "share"), cells, 2, title, is_folded=bool(title), notes=notes)


def _tiles(part: Part) -> Iterator[Tile]:
    is_empty = part.report.findings is not None and part.report.findings.nothing is not None
    for tile in () if is_empty else part.report.tiles[:_TILES]:
        yield replace(tile, label=f"{part.name}: {tile.label}")


def folded(part: Part) -> Iterator[Section]:
    """Its sections with names of their own, folded; the first one begins with its head."""
    key = part.name.replace(" ", "-")
    head: list[Block] = list(part.report.head)
    for number, section in enumerate(part.report.sections):
        blocks = [*(head if number == 0 else []), *(_keyed(block, key) for block in section.blocks)]
        yield Section(
            f"{key}-{section.key}",
            part.name.capitalize() if number == 0 else "",
            ": ".join(filter(None, [part.name.capitalize(), section.title])),
            blocks,
            is_folded=True,
        )


def _keyed(block: Block, key: str) -> Block:
    return (
        replace(block, key=f"{key}-{block.key}") if isinstance(block, Series | HeatMap | Waterfall) else block
    )
