"""Rules, the findings they make and the limits they judge by.

A rule is one object with everything that belongs to its finding. No rule calls another: `find` orders them,
so that a rule knows what other findings explain of the figures it looks at. An instrument brings its cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from types import ModuleType
from typing import Any, Generic, TypeAlias, TypeVar

from flagscale_perf.spine.limits import CAUSE, Limit


@dataclass(frozen=True)
class Evidence:
    """A figure beside the limit it broke.

    Attributes:
        figure: what it is, in words.
        value, limit: both in `unit`.
        unit: "share", "ms", "s", "GB", "times" or "".
        source: where the limit is from.
    """

    figure: str
    value: float
    limit: float
    unit: str
    source: str


@dataclass(frozen=True)
class Change:
    """Something to change.

    Attributes:
        flags: of the host (or variables) as they are written, each with its new value where one is proposed.
        text: what to do with them, and why.
        keys: the same for the host's yaml, each with its value; none where it has no yaml.
        settings: flags and variables with the value that is proposed, True for a switch; without those that
            the user must give a value.
    """

    flags: list[str]
    text: str
    keys: list[str] = field(default_factory=list)
    settings: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def for_case(self, case: Any) -> Change | None:
        """The change for this case; None where there is nothing to change. A rule's own changes may differ
        from case to case, those of a finding do not.
        """
        return self


@dataclass(frozen=True)
class Advice(Change):
    """A change that depends on the case.

    Attributes:
        make: from the case; None where there is nothing to change.
    """

    make: Callable[[Any], Change | None] = lambda case: None

    def for_case(self, case: Any) -> Change | None:
        """The change that `make` makes of the case."""
        return self.make(case)


def change_of(said: Change | str) -> Change:
    """The change that is meant; one of which there are words alone is of no flag."""
    return Change([], said) if isinstance(said, str) else said


def unless(said: Change | str, is_so: Callable[[Any], bool]) -> Advice:
    """The change, unless the case shows that it is made already or would change nothing."""
    own = change_of(said)
    return Advice(list(own.flags), own.text, make=lambda case: None if is_so(case) else own.for_case(case))


@dataclass(frozen=True)
class Finding:
    """Something that holds the run back.

    Attributes:
        name: its kind, a key such as "data_stall".
        title: one line.
        cost_s: time of the session that it takes; None for a risk or a doubt, which costs nothing yet.
        cost_share: that of the wall time.
        cost_of_steps: that of the time that the gain is of; None where that is the wall time.
        gain: more of `gain_of` if it were removed altogether, 0.12 is +12 %; None like cost_s.
        least_s, least_gain: where cost and gain are known as intervals, their lower ends; the others are the
            upper ones.
        likely_gain: within that interval; None where the gain is a bound.
        gain_from: what the gain is from, in words; "" where there is nothing to say.
        what_if: the change whose gain it is, as `flagscale-perf what-if RUN` takes it; "" for none.
        overlaps: names of findings that count the same time: what they gain does not come on top.
        gain_of: "tokens/s" for what slows the steps down, "tokens in the same time" for what stands between
            them.
        evidence: at least one.
        first_iteration, iteration: where; None for the whole run.
        ranks: whose; empty for all or where it is not known.
        causes: likely ones, the likeliest first.
        changes: what to do, the best first.
        phase: in which of the instrument's phases the time goes; None for no one in particular.
        pattern: "constant", "growing", "lasting" (from some step on), "periodic", "bursts" or "single"; None
            where no one is known.
        step_ms: how much longer a step is for whom it concerns, in the steps that it concerns; None where it
            is not known.
        cause: of ranks that others wait for, what explains at least `CAUSE` of it: "work" (they have more of
            it) or "speed" (they are slower at the same work); "both" where neither does; None where that is
            not known.
        where: the place inside of what is measured, such as "layer 1, Python"; "" for none.
        base: what the cost's shares are of; "" for the wall time, and the steps' time.
        instrument: that found it, in the report of a job; else "".
        links: what explains it, the largest share first: here or, in the report of a job, one layer down.
        risk: what it costs other than time, where it has no cost.
    """

    name: str
    title: str
    cost_s: float | None = None
    cost_share: float | None = None
    gain: float | None = None
    gain_of: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    first_iteration: int | None = None
    iteration: int | None = None
    ranks: list[int] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    phase: str | None = None
    pattern: str | None = None
    least_s: float | None = None
    least_gain: float | None = None
    likely_gain: float | None = None
    gain_from: str = ""
    what_if: str = ""
    overlaps: Sequence[str] = ()
    cost_of_steps: float | None = None
    step_ms: float | None = None
    cause: str | None = None
    where: str = ""
    base: str = ""
    instrument: str = ""
    links: Sequence[Link] = ()
    risk: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The fields of all instruments' findings, as data ready for JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "cost_s": self.cost_s,
            "gain": self.gain,
            "evidence": [vars(each) for each in self.evidence],
            "causes": self.causes,
            "changes": [change.text for change in self.changes],
            **{name: said for name in _IF_SAID if (said := getattr(self, name)) not in (None, "")},
            **({"overlaps": list(self.overlaps)} if self.overlaps else {}),
            **({"risk": self.risk} if self.risk else {}),
            **({"explained_by": [link.short() for link in self.links]} if self.links else {}),
        }

    def in_job(self) -> dict[str, Any]:
        """The same in the findings of a job: with whom and what it concerns, and its links."""
        return {
            "instrument": self.instrument,
            **self.as_dict(),
            "cost_share": self.cost_share,
            "base": self.base or WALL_TIME,
            "ranks": list(self.ranks),
            **{name: getattr(self, name) for name in _PLACES},
            "links": [link.as_dict() for link in self.links],
        }


WALL_TIME = "the wall time"
_IF_SAID = (
    "least_s",
    "least_gain",
    "likely_gain",
    "gain_from",
    "what_if",
)  # that JSON has where known
_PLACES = ("first_iteration", "iteration", "phase", "step_ms", "where")
IN_JOB = ("step_ms", "where", "base", "instrument", "links")  # fields by which findings of a job are linked


@dataclass(frozen=True)
class Link:
    """What explains a finding one layer down.

    Attributes:
        finding: of another instrument, or another part of this one.
        share: of the cost that it explains, from 0 to 1; None where that is not known.
    """

    finding: Finding
    share: float | None

    @property
    def is_cause(self) -> bool:
        """Whether it explains the cost; else it is an observation."""
        return self.share is not None and self.share >= CAUSE

    def short(self) -> dict[str, Any]:
        """As data ready for JSON, with the finding's title alone."""
        return {"share": self.share, "is_cause": self.is_cause, "title": self.finding.title}

    def as_dict(self) -> dict[str, Any]:
        """As data ready for JSON."""
        return {"share": self.share, "is_cause": self.is_cause, "finding": self.finding.in_job()}


_LEAST = 0.05  # of a cost: what explains less is not worth a word


def consequence(finding: Finding, causes: Iterable[tuple[Finding, float]]) -> Finding:
    """The finding as a consequence of others, each with the share of its cost that it explains."""
    links = [Link(cause, min(1.0, share)) for cause, share in causes if share > _LEAST]
    names = dict.fromkeys((*finding.overlaps, *(link.finding.name for link in links)))
    links.sort(key=lambda link: -(link.share or 0.0))
    return replace(finding, links=links, overlaps=list(names)) if links else finding


@dataclass(frozen=True)
class Case:
    """A case that rules examine. An instrument's own case adds its figures.

    Attributes:
        explained_by: findings that explain part of what the rule at hand looks at; `find` fills it in.
    """

    explained_by: Sequence[Finding] = field(default=(), kw_only=True)

    @property
    def can_judge_speed(self) -> bool:
        """Whether there is enough to judge speed by."""
        return True

    def of_host(self, change: Change) -> Change | None:
        """The change as the host's user makes it; None where the host has nothing to set for it."""
        return change

    @property
    def explained_s(self) -> float:
        """Time that these findings take."""
        return sum(finding.cost_s or 0.0 for finding in self.explained_by)


CaseT = TypeVar("CaseT", bound=Case)
Judged: TypeAlias = Finding | Sequence[Finding] | None


@dataclass(frozen=True)
class Rule(Generic[CaseT]):
    """One kind of finding; `rule` makes one of a function.

    Attributes:
        name: of the finding.
        limits: by the names that the docs have for them.
        causes: likely ones, the likeliest first.
        changes: what to do, the best first.
        explains: rules that see this trouble in their figures, too. They look after this one.
        needs_speed: is skipped where `Case.can_judge_speed` says no.
        names_cause: the finding names a phase, rank, rhythm, device or setting that can be acted upon; those
            of other rules are listed last.
        judge: gets the rule and a case; returns what it finds, several findings where several parts of the
            run have this trouble, None where nothing is wrong or known.
    """

    name: str
    limits: Mapping[str, Limit]
    causes: Sequence[str]
    changes: Sequence[Change]
    explains: frozenset[str]
    needs_speed: bool
    names_cause: bool
    judge: Callable[[Rule[CaseT], CaseT], Judged]

    def look(self, case: CaseT) -> list[Finding]:
        """The findings of this rule, with the changes that are left to make."""
        found = self.judge(self, case) or ()

        def for_case(change: Change) -> Change | None:
            made = change.for_case(case)
            return made and case.of_host(made)

        return [
            replace(one, changes=[own for own in map(for_case, one.changes) if own])
            for one in ([found] if isinstance(found, Finding) else found)
        ]

    def exceeds(self, value: float | None, limit: str) -> bool:
        """Whether a figure is known and above the limit of that name."""
        return value is not None and value > self.limits[limit].value

    def broke(self, figure: str, value: float, limit: str) -> Evidence:
        """A figure that broke the limit of that name."""
        broken = self.limits[limit]
        return Evidence(figure, value, broken.value, broken.unit, broken.source)

    def finding(self, title: str, evidence: list[Evidence], gain_of: str) -> Finding:
        """A finding without a cost, for the whole run and all ranks; `dataclasses.replace` adds the rest."""
        advised: dict[str, Any] = {"causes": list(self.causes), "changes": list(self.changes)}
        return Finding(self.name, title, gain_of=gain_of, evidence=evidence, **advised)


def rule(
    *,
    limits: Mapping[str, Limit],
    causes: Sequence[str],
    changes: Sequence[Change | str],
    explains: Iterable[str] = (),
    needs_speed: bool = False,
) -> Callable[[Callable[[Rule[CaseT], CaseT], Judged]], Rule[CaseT]]:
    """Makes a rule of the function below it, by whose name the finding is known."""

    def made_of(judge: Callable[[Rule[CaseT], CaseT], Judged]) -> Rule[CaseT]:
        name, made = judge.__name__, [*map(change_of, changes)]
        return Rule(name, limits, causes, made, frozenset(explains), needs_speed, True, judge)

    return made_of


def names_no_cause(judged: Rule[CaseT]) -> Rule[CaseT]:
    """Marks a rule whose finding says that something is wrong, not what; stands above `rule`."""
    return replace(judged, names_cause=False)


def rules_in(*modules: ModuleType) -> list[Rule[Any]]:
    """Every rule of these modules, so that a new one needs no line elsewhere."""
    return [value for module in modules for value in vars(module).values() if isinstance(value, Rule)]


def find(rules: Iterable[Rule[CaseT]], case: CaseT) -> list[Finding]:
    """The findings: the costliest first, then those that name no cause, and last those without a cost."""
    found: list[tuple[bool, float, Finding]] = []
    explained_by: dict[str, list[Finding]] = {}
    for each in _in_order(rules):
        if each.needs_speed and not case.can_judge_speed:
            continue
        for finding in each.look(replace(case, explained_by=explained_by.get(each.name, ()))):
            cost_s = -1.0 if finding.cost_s is None else finding.cost_s
            found.append((each.names_cause and cost_s >= 0, cost_s, finding))
            for other in each.explains:
                explained_by.setdefault(other, []).append(finding)
    return [finding for *_, finding in sorted(found, key=lambda one: one[:2], reverse=True)]


def _in_order(rules: Iterable[Rule[CaseT]]) -> list[Rule[CaseT]]:
    """Each after those that explain it, and otherwise as they come. Raises CycleError for two that explain
    each other, KeyError for one that explains a rule that is not there.
    """
    by_name = {each.name: each for each in rules}
    order: TopologicalSorter[str] = TopologicalSorter()
    for each in by_name.values():
        order.add(each.name)
        for other in each.explains:
            order.add(other, each.name)
    return [by_name[name] for name in order.static_order()]
