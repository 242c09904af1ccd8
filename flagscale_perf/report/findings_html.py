"""Findings on a page: a card each, what it costs in front."""

from __future__ import annotations

from collections.abc import Sequence

from flagscale_perf.analysis.rules import Change, Evidence, Finding
from flagscale_perf.report.markup import Html, duration, join, note, numbers_of, pairs, percent, span, tag

_COPY = "Copy"


def findings(found: Sequence[Finding], unjudged: Sequence[str]) -> Html:
    """All of them in their order, and what could not be looked for."""
    doubts = join(note(f"Not judged: {phrase}") for phrase in unjudged)
    if not found:
        return tag("p", "Nothing: no figure that could be judged is beyond its limit.") + Html("\n") + doubts
    return (
        tag("ol", *(tag("li", _card(one)) + Html("\n") for one in found), class_="findings")
        + Html("\n")
        + doubts
    )


def _card(one: Finding) -> Html:
    head = tag("header", tag("h3", one.title), _price(one))
    where = [
        ("iterations", span(one.first_iteration, one.iteration)),
        ("ranks", numbers_of(one.ranks) if one.ranks else None),
    ]
    return tag(
        "article",
        head,
        Html("\n"),
        pairs(where, "facts where") if any(value is not None for _, value in where) else "",
        tag("div", _evidence(one.evidence), _changes(one.changes), _causes(one.causes), class_="advice"),
        Html("\n"),
        class_="finding costs" if one.cost_s is not None else "finding",
        id=f"finding-{one.name}",
    )


def _price(one: Finding) -> Html:
    """Cost and gain; a risk has neither yet."""
    if one.cost_s is None:
        return tag("p", tag("span", "a risk: costs nothing yet", class_="tag"), class_="price")
    lost = [
        duration(one.cost_s),
        f"{percent(one.cost_share)} of the wall time" if one.cost_share is not None else None,
    ]
    parts = [tag("span", "costs ", tag("b", ", ".join(word for word in lost if word)), class_="tag cost")]
    if one.gain is not None:
        parts.append(
            tag("span", "at most ", tag("b", f"+{percent(one.gain)}"), f" {one.gain_of}", class_="tag gain")
        )
    return tag("p", join(parts, " "), class_="price")


def _evidence(evidence: Sequence[Evidence]) -> Html:
    items = (
        tag(
            "li",
            tag("b", _figure(each.value, each.unit)),
            f" {each.figure} ",
            tag("span", f"limit {_figure(each.limit, each.unit)}; {each.source}", class_="small"),
        )
        for each in evidence
    )
    return tag("div", tag("h4", "Evidence"), tag("ul", *items, class_="plain")) + Html("\n")


def _changes(changes: Sequence[Change]) -> Html:
    if not changes:
        return Html("")
    items = (
        tag("li", join((*(_flag(flag) for flag in one.flags), tag("span", one.text)), " ")) + Html("\n")
        for one in changes
    )
    return tag("div", tag("h4", "What to change"), tag("ul", *items, class_="plain")) + Html("\n")


def _flag(flag: str) -> Html:
    button = tag("button", _COPY, type="button", class_="copy", data_copy=flag, aria_label=f"Copy {flag}")
    return tag("span", tag("code", flag), button, class_="flag")


def _causes(causes: Sequence[str]) -> Html:
    if not causes:
        return Html("")
    return tag("div", tag("h4", "Likely causes"), tag("ul", *(tag("li", cause) for cause in causes)))


def _figure(value: float, unit_name: str) -> str:
    return f"{value:.1%}".replace("%", " %") if unit_name == "share" else f"{value:,.4g} {unit_name}".rstrip()
