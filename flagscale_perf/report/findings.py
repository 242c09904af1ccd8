"""The lines below a finding's title."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flagscale_perf.analysis.blocks import Quantity, span
from flagscale_perf.analysis.rules import WALL_TIME, Change, Evidence, Finding, Link
from flagscale_perf.report.format import shown
from flagscale_perf.spine.language import said, say
from flagscale_perf.spine.units import duration, percent, ranges

STEPS = "the steps' time"
RISK = "a risk: costs nothing yet"
_LEAST_SHARE = 1e-5
_SMALL = 0.02  # more of what is gained: an interval with less, and with nothing, is none


def capital(text: str) -> str:
    """With its first letter as a sentence begins."""
    return text[:1].upper() + text[1:]


def rows(finding: Finding) -> list[tuple[str, str]]:
    """Label and text of each line."""
    lines = [("costs", cost(finding))]
    if finding.cost_of_steps is not None and finding.cost_share is not None and not finding.base:
        lines.append(("of the session", say("{0} of the wall time", percent(finding.cost_share))))
    lines += [("found by", finding.instrument)] if finding.instrument else []
    lines += explanations(finding)
    lines += [("evidence", evidence(each)) for each in finding.evidence]
    where = span(finding.first_iteration, finding.iteration)
    lines += [("iterations", said(where))] if where is not None else []
    lines += [("ranks", said(ranges(finding.ranks)))] if finding.ranks else []
    lines += [("may be due to", say("; ").join(map(said, known)))] if (known := causes(finding)) else []
    lines += [("change", changed(change)) for change in changes(finding)]
    return [(say(label), text) for label, text in lines]


def title(finding: Finding) -> str:
    """Its line, in the reader's language."""
    return said(finding.title)


def explanations(finding: Finding) -> list[tuple[str, str]]:
    """What explains a finding, each once, with the share; and behind a cause what explains that."""
    listed = {finding.title: ("", "")}

    def add(links: Sequence[Link], by: str) -> None:
        for link in [link for link in links if link.finding.title not in listed]:
            by_whom = link.finding.instrument
            whose = say(", found by {0}", by_whom) if by_whom else ""
            share = "" if link.share is None else say(" ({0} of it{1})", percent(link.share), whose)
            listed[link.finding.title] = (by if link.is_cause else "in part by", title(link.finding) + share)
            if link.is_cause:
                add(link.finding.links, "and that by")

    add(finding.links, "explained by")
    return [row for row in listed.values() if row[0]]


def changes(finding: Finding) -> Sequence[Change]:
    """What to do; where a cause is known, that one's."""
    known = [link.finding for link in finding.links if link.is_cause and link.finding.changes]
    return changes(known[0]) if known else finding.changes


def causes(finding: Finding) -> Sequence[str]:
    """Likely causes; where one is known, its own."""
    known = [link.finding for link in finding.links if link.is_cause and link.finding.causes]
    return causes(known[0]) if known else finding.causes


def short(finding: Finding) -> list[tuple[str, str]]:
    """The cost and the best change."""
    by = say(" (found by {0})", finding.instrument) if finding.instrument else ""
    best = [(say("change"), changed(change)) for change in changes(finding)[:1]]
    return [(say("costs"), cost(replace(finding, gain_from="")) + by), *best]


def changed(change: Change) -> str:
    """What to set, and to what, with the keys of the host's yaml; else what to do."""
    keys = f" ({yaml_keys(change)})" if change.keys else ""
    text = said(change.text)
    return f"{' '.join(change.flags)}{keys}{say(': ')}{text}" if change.flags else text


def yaml_keys(change: Change) -> str:
    """Such as `yaml num_workers: 4`, for a change that has keys."""
    return f"yaml {', '.join(change.keys)}"


def cost(finding: Finding) -> str:
    """The finding's cost, and what would be gained without it."""
    if finding.cost_s is None:
        return said(finding.risk or RISK)
    gain = say("; without it {0}", gained(finding)) if finding.gain is not None else ""
    return lost(finding) + gain


def lost(finding: Finding) -> str:
    """Such as `7.4 s, 11.0 % of the wall time` or `5.1 s to 7.4 s, ...`, for a finding that has a cost."""
    share = (
        ""
        if finding.cost_share is None
        else say(", {0} of {1}", percent(finding.cost_share), said(finding.base or WALL_TIME))
    )
    if finding.cost_of_steps is not None:
        share = say(", {0} of {1}", percent(finding.cost_of_steps), said(finding.base or STEPS))
    least = "" if finding.least_s is None else say("{0} to ", duration(finding.least_s))
    most = say(" at most") if least and share else ""
    return least + duration(finding.cost_s or 0.0) + share + most


def gained(finding: Finding) -> str:
    """Such as `+12.0 % tokens/s (+9.1 % to +14.7 %; replay of 6 captured steps, 301-306)`, `no gain (...)`,
    or `at most +12.0 % tokens/s (arithmetic)`, for a finding that has a gain.
    """
    names, of = say(" and ").join(finding.overlaps).replace("_", " "), said(finding.gain_of)
    notes = [names and say("overlaps with {0}", names), said(finding.gain_from)]
    least, likely, most = finding.least_gain, finding.likely_gain, _signed(finding.gain or 0.0)
    if least is None:
        gain = say("at most {0} {1}", most, of)
    elif likely is None:
        gain = say("{0} to {1} {2}", _signed(least), most, of)
    elif least <= 0:
        gain = say("no gain") if (finding.gain or 0.0) <= _SMALL else say("no gain that is sure")
        notes = [say("{0} to {1} {2}", _signed(least), most, of), *notes]
    else:
        gain, notes = f"{_signed(likely)} {of}", [say("{0} to {1}", _signed(least), most), *notes]
    kept = "; ".join(filter(None, notes))
    return f"{gain} ({kept})" if kept else gain


def _signed(share: float) -> str:
    return f"{'-' if share < 0 else '+'}{percent(abs(share))}"


def evidence(each: Evidence) -> str:
    """The figure with its value and its limit."""
    value, limit = figure(each.value, each), figure(each.limit, each)
    return say("{0}: {1}, limit {2} ({3})", said(each.figure), value, limit, said(each.source))


def figure(value: float, each: Evidence) -> str:
    """The value with the unit of the evidence."""
    if each.unit == "share" and 0 < value < _LEAST_SHARE:
        return say("below 0.001 %")
    return shown(Quantity(value, each.unit))
