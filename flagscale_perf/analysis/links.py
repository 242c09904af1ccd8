"""What explains what, one layer down: the only place that knows two instruments, by the names of their
findings. A row is reached by findings of the same ranks and steps; no instrument has to be there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from flagscale_perf.analysis.rules import Finding, Link

WORTH = 0.1  # of a cost: what explains less is not said
Share = Callable[[Finding, Finding], float | None]


@dataclass(frozen=True)
class Row:
    """Findings that may explain others.

    Attributes:
        of: names of the findings that are explained.
        by: of those that explain them.
        share: what part of the first one's cost the second one explains, by their own figures; None where
            they do not concern the same ranks, steps or phase, or this is not known.
    """

    of: Collection[str]
    by: Collection[str]
    share: Share


def is_same_stretch(one: Finding, other: Finding) -> bool:
    """Whether they concern steps that overlap; one without steps concerns all."""
    first, last = (one.first_iteration, one.iteration), (other.first_iteration, other.iteration)
    if None in first or None in last:
        return True
    return first[0] <= last[1] and last[0] <= first[1]  # type: ignore[operator]


def of_a_step(upper: Finding, lower: Finding) -> float | None:
    """Of ranks that take longer: what each of their steps takes longer, of the same ranks, phase, steps."""
    if not upper.step_ms or lower.step_ms is None or not is_same_stretch(upper, lower):
        return None
    if not lower.ranks or not set(lower.ranks) <= set(upper.ranks):
        return None
    if lower.phase not in (upper.phase, None):
        return None
    return lower.step_ms / upper.step_ms


def of_a_rank(upper: Finding, lower: Finding) -> float | None:
    """The same where the lower one is seen from the waiting ranks, in another phase."""
    return of_a_step(upper, replace(lower, phase=None))


def of_the_time(upper: Finding, lower: Finding) -> float | None:
    """Of findings that count seconds of the same time."""
    if not upper.cost_s or lower.cost_s is None or not is_same_stretch(upper, lower):
        return None
    return lower.cost_s / upper.cost_s


_SLOW = ("slowdown", "slow_steps", "periodic_steps", "jitter")

LINKS: tuple[Row, ...] = (
    # a rank that is late -> its module, or the same seen by its profile
    Row(("straggler",), ("slow_on_rank", "slow_layer", "python_in_module"), of_a_step),
    Row(("straggler",), ("late_rank",), of_a_rank),
    # slow steps -> what happens in them
    Row(_SLOW, ("host_short_of_cpu", "host_short_of_memory"), of_the_time),
)


def linked(found: Iterable[Finding], rows: Sequence[Row] = LINKS) -> list[Finding]:
    """The findings with what explains them; one that is the cause of another stands in that one alone. What
    costs most for certain comes first: by the lower end of a cost that is an interval.
    """
    every, causes = list(found), set[int]()
    made = []
    for upper in every:
        links = [
            Link(lower, min(share, 1.0))
            for row in rows
            if upper.name in row.of
            for lower in every
            if lower.name in row.by
            and lower is not upper
            and (share := row.share(upper, lower)) is not None
            and share >= WORTH
        ]
        causes |= {id(link.finding) for link in links if link.is_cause}
        ordered = [*upper.links, *sorted(links, key=lambda link: not link.is_cause)]  # own ones first
        made.append((upper, replace(upper, links=ordered, title=_title(upper, ordered))))
    kept = [one for upper, one in made if id(upper) not in causes]
    return sorted(kept, key=_certain, reverse=True)


def _title(upper: Finding, links: Sequence[Link]) -> str:
    """With the place in which the first cause is."""
    where = next((link.finding for link in links if link.is_cause and link.finding.where), None)
    return upper.title if where is None else f"{upper.title}: {inside(where)}"


def inside(finding: Finding) -> str:
    """Such as `in layer 1, Python: +30.7 ms, steps 20 to 42`."""
    more = "" if finding.step_ms is None else f": +{finding.step_ms:.1f} ms"
    first, last = finding.first_iteration, finding.iteration
    steps = "" if first is None or last is None else f", steps {first} to {last}"
    return f"in {finding.where}{more}{steps}"


def _certain(finding: Finding) -> float:
    if finding.cost_s is None:
        return -1.0
    return finding.cost_s if finding.least_s is None else finding.least_s
