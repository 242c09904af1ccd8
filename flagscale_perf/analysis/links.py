"""What explains what, one layer down: the only place that knows two instruments, by the names of their
findings. No instrument has to be there: a row without findings links nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from flagscale_perf.analysis.rules import Finding, Link

WORTH = 0.1  # of a cost: what explains less is not said
Share = Callable[[Finding, Finding], float | None]


@dataclass(frozen=True)
class Row:
    """Findings that may explain others, each as `instrument.name`.

    Attributes:
        of: those that are explained.
        by: those that explain them.
        share: what part of the first one's cost the second one explains, by their own figures; None where
            they do not concern the same ranks, steps or phase, or this is not known.
    """

    of: Sequence[str]
    by: Sequence[str]
    share: Share


def overlap(one: Finding, other: Finding) -> bool:
    """Whether they concern steps that overlap; one without steps concerns all."""
    spans = [(each.first_iteration, each.iteration) for each in (one, other)]
    known = [(first, last) for first, last in spans if first is not None and last is not None]
    return len(known) < 2 or max(first for first, _ in known) <= min(last for _, last in known)


def of_a_step(upper: Finding, lower: Finding) -> float | None:
    """Of ranks that take longer: by how much a step of theirs is longer, of the same phase and steps."""
    if lower.phase not in (upper.phase, None):
        return None
    return of_a_late_step(upper, lower)


def of_a_late_step(upper: Finding, lower: Finding) -> float | None:
    """The same in whatever phase: the lower one may be seen by those who wait."""
    if not upper.step_ms or lower.step_ms is None or not overlap(upper, lower):
        return None
    if not lower.ranks or not set(lower.ranks) <= set(upper.ranks):
        return None
    return lower.step_ms / upper.step_ms


def of_the_time(upper: Finding, lower: Finding) -> float | None:
    """Of findings that count seconds of the same steps."""
    if not upper.cost_s or lower.cost_s is None or not overlap(upper, lower):
        return None
    return lower.cost_s / upper.cost_s


def of_all_steps(upper: Finding, lower: Finding) -> float | None:
    """Of findings that each have a share of the steps in which they were measured."""
    if lower.phase not in (upper.phase, None, "communication"):
        return None
    if not upper.cost_of_steps or not lower.cost_of_steps or not overlap(upper, lower):
        return None
    return lower.cost_of_steps / upper.cost_of_steps


_UNEVEN = ("training.slowdown", "training.slow_steps", "training.periodic_steps", "training.jitter")
_DATA = ("training.data_stall",)
_QUEUE = (
    "trace.starvation",
    "trace.slow_stage",
    "trace.slow_producer",
    "trace.straggling_unit",
    "trace.bound",
)
_CALLS = ("rpc.server", "rpc.transport", "rpc.serialization", "rpc.deserialization")

LINKS: tuple[Row, ...] = (
    # a late rank: its module, or the same as its profile sees it
    Row(
        ("training.straggler",),
        ("profile.slow_on_rank", "profile.slow_layer", "profile.python_in_module"),
        of_a_step,
    ),
    Row(("training.straggler", "training.slow_stage"), ("profile.late_rank",), of_a_late_step),
    Row(("profile.late_rank",), ("profile.slow_on_rank",), of_a_late_step),
    # steps that differ: what happens in some of them
    Row(_UNEVEN, ("training.host_short_of_cpu", "training.host_short_of_memory"), of_the_time),
    Row(_UNEVEN, ("training.checkpoint", "training.evaluation", "profile.costly_observer"), of_the_time),
    # waiting for data: who makes them, and the calls in that
    Row(_DATA, (*_QUEUE, *_CALLS), of_the_time),
    Row(("trace.slow_stage", "trace.slow_producer"), _CALLS, of_the_time),
    # communication: its group and link, or the rank that comes last in it
    Row(("training.exposed_comm",), ("profile.transfers", "profile.late_rank"), of_all_steps),
    Row(("training.pipeline_bubble", "training.slow_stage"), ("profile.uneven_stages",), of_all_steps),
    # a phase that takes long: what in it
    Row(
        ("training.long_phase",),
        ("profile.python_in_module", "profile.slow_layer", "profile.recomputation"),
        of_all_steps,
    ),
)


def linked(found: Iterable[Finding], rows: Sequence[Row] = LINKS) -> list[Finding]:
    """The findings with what explains them; one that is the cause of another stands in that one alone. What
    costs most for certain comes first: by the lower end of a cost that is an interval.
    """
    every, below = list(found), _Below(list(found), rows)
    made = [below.of(one) for one in every]
    kept = [made_of for one, made_of in zip(every, made, strict=True) if id(one) not in below.causes]
    return sorted(kept, key=_certain, reverse=True)


class _Below:
    """Findings with what is below them, and what is below that.

    Attributes:
        causes: ids of the findings that stand in another one.
    """

    def __init__(self, every: Sequence[Finding], rows: Sequence[Row]) -> None:
        self._every, self._rows = every, rows
        self.causes: set[int] = set()

    def of(self, upper: Finding, above: Sequence[Finding] = ()) -> Finding:
        """The finding with its links, but for what is above it."""
        seen, links = (*above, upper), list[Link]()
        for lower, share in self._below(upper):
            if any(lower is one for one in seen) or any(lower.title == one.finding.title for one in links):
                continue
            links.append(Link(self.of(lower, seen), min(share, 1.0)))
            # what costs more than what it explains within its own instrument stands for itself, too
            is_own = lower.instrument == upper.instrument and (lower.cost_s or 0.0) > (upper.cost_s or 0.0)
            self.causes |= {id(lower)} if links[-1].is_cause and not is_own else set()
        links.sort(key=lambda link: not link.is_cause)
        return replace(upper, links=links, title=_title(upper, links)) if links else upper

    def _below(self, upper: Finding) -> Iterator[tuple[Finding, float]]:
        """What its own instrument knows to explain it, then what rows of the table say."""
        for link in upper.links:
            own = (each for each in self._every if each.instrument == upper.instrument)
            known = next((each for each in own if each.title == link.finding.title), None)
            if known is not None and link.share is not None:
                yield known, link.share
        for row in self._rows:
            if _key(upper) in row.of:
                for lower in self._every:
                    if _key(lower) in row.by and (share := row.share(upper, lower) or 0.0) >= WORTH:
                        yield lower, share


def _key(finding: Finding) -> str:
    """Its name with that of its instrument, which may have a number behind it."""
    return f"{finding.instrument.partition(' ')[0]}.{finding.name}"


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
