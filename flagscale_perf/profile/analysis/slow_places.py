"""Rules for places of the model that take longer than others of their kind, or on one rank."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.rules import Finding, rule
from flagscale_perf.profile.analysis.case import ProfileCase, ProfileRule, takes
from flagscale_perf.profile.analysis.layers import OUTSIDE, Place
from flagscale_perf.profile.analysis.operators import COMMUNICATION, HOST
from flagscale_perf.profile.analysis.paired import FEW_LAYERS, MOSTLY, Slower
from flagscale_perf.profile.analysis.sums import PhaseSums
from flagscale_perf.spine.averages import median
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.spine.limits import Limit

WORDS = {HOST: "Python"}  # kinds of work, as a title says them
CHANCE = 0.05  # that layers that are alike would differ as they do, so that none is named


def _within(
    case: ProfileCase, sums: PhaseSums, found: Finding, where: str, more_ns: tuple[float, float]
) -> Finding:
    """The finding with the lower end of its cost and its place; and its rank, where one of several was
    profiled.
    """
    least, most = more_ns
    found = replace(found, least_s=least * sums.mean.steps / NS_PER_S, where=where)
    ranks = [case.report.profile.ranks[number] for number in sums.books]
    if len(ranks) > 1 or (ranks[0].place.get("world_size") or 1) < 2:
        return found
    return _of_rank(case, sums, found, ranks[0].rank, (least + most) / 2)


def _of_rank(case: ProfileCase, sums: PhaseSums, found: Finding, rank: int, more_ns: float) -> Finding:
    first, last = case.report.profile.span(sums.phase)
    step_ms = more_ns / NS_PER_MS
    return replace(found, ranks=[rank], step_ms=step_ms, first_iteration=first, iteration=last)


def layers_of(sums: PhaseSums) -> list[Place]:
    """Empty if there are too few to compare."""
    found = [place for place in sums.places if place.number is not None]
    return found if len(found) >= FEW_LAYERS else []


def outside_python(sums: PhaseSums) -> float:
    """Python outside of forward, backward and optimizer, per step of the mean rank."""
    found = sums.by(
        lambda cell: cell.kind,
        lambda cell: (cell.kind, cell.place.name, cell.phase) == (HOST, OUTSIDE, "other"),
    )
    return sum(one.self_ns for one in found.values())


def more_python(sums: PhaseSums) -> dict[str, float]:
    """Python of each layer and module beyond that of the median layer, per step of the mean rank."""
    python = sums.by(lambda cell: cell.place, lambda cell: cell.kind == HOST and cell.place.name != OUTSIDE)
    if not (layers := layers_of(sums)):
        return {}
    usual = median(python[place].self_ns if place in python else 0.0 for place in layers)
    return {place.name: one.self_ns - usual for place, one in python.items() if one.self_ns > usual}


@rule(
    limits={"python": Limit(0.1, "share", "ours: of a step, beyond what the median layer spends in Python")},
    causes=["the module sleeps, waits, or computes outside of operators"],
    changes=["read its forward for what is no operator: I/O, locks, loops, copies to the host"],
)
def python_in_module(this: ProfileRule, case: ProfileCase) -> list[Finding]:
    """A module that is no layer spends much of the step in Python, and not by chance."""
    found = []
    for sums in case.steps:
        for one in case.times[sums.phase].python() if sums.phase in case.times else ():
            (low, high), (least, most) = one.shares, one.more_ns
            if this.exceeds(low, "python"):
                times = f"{least / NS_PER_MS:.3f} to {most / NS_PER_MS:.3f} ms"
                shares = f"{100 * low:.1f} to {100 * high:.1f} % in {one.steps} steps"
                words = f"of a {sums.phase} step beyond its median layer, {shares}: {times}"
                title = f"Python in {one.name} takes {100 * one.share:.1f} % of a {sums.phase} step"
                finding = takes(this, sums.mean, title, most, [this.broke(words, one.share, "python")])
                found.append(_within(case, sums, finding, one.name, one.more_ns))
    return found


@rule(
    limits={
        "slower": Limit(
            1.5, "times", "ours: relative to the median layer and to every layer within the limit"
        ),
        "worth": Limit(0.02, "share", "ours: of a step, less is not worth a change"),
    },
    causes=[
        "the layer is another kind, its input is larger, or something else ran on the processor",
        "where it is Python (host): the layer sleeps, waits or computes outside of operators",
    ],
    changes=["compare its rows with another layer's: the operator that differs is in the heat map"],
)
def slow_layer(this: ProfileRule, case: ProfileCase) -> list[Finding]:
    """A layer takes much longer than the median layer of the same step, in operators or in Python, and not
    by chance; longer in the same way than every layer within the limit, also by the lower end of what it
    takes. The cost is an interval.
    """
    found = []
    for sums in case.steps:
        layers = case.times[sums.phase].slower() if sums.phase in case.times else []
        above = [one for one in layers if this.exceeds(one.ratio, "slower")]
        others = max([1.0, *(one.ratio for one in layers if one not in above)])
        for one in above:
            (least, most), (low, high) = one.more_ns, one.ratios
            if _is_of_a_rank(case, sums, one):
                continue
            is_apart = low > others and this.exceeds(one.ratio / others, "slower") and one.chance <= CHANCE
            if not (is_apart and this.exceeds(most / sums.mean.total, "worth")):
                continue
            words = (
                f"{one.name} to the median layer of the same step, {low:.2f} to {high:.2f} in {one.steps}"
                f" steps: {least / NS_PER_MS:.3f} to {most / NS_PER_MS:.3f} ms more, most of it in"
                f" {_differs(sums, one.name)}"
            )
            times = f"{one.ratio:.1f} times as long as the other layers"
            title = f"{one.name.capitalize()} takes {times} ({sums.phase})"
            finding = takes(this, sums.mean, title, most, [this.broke(words, one.ratio, "slower")])
            found.append(_within(case, sums, finding, f"{one.name}, {_differs(sums, one.name)}", one.more_ns))
    return found


def _is_of_a_rank(case: ProfileCase, sums: PhaseSums, layer: Slower) -> bool:
    """Whether most of what a layer takes longer, on the mean rank, is what it takes longer on one rank."""
    on_one_ns = [one.more_ns for one in case.on_ranks.get(sums.phase, ()) if one.place == layer.name]
    named = case.explained_by and layer.name in {one.where.split(", ")[0] for one in case.explained_by}
    return bool(named) and sum(on_one_ns) / len(sums.books) >= MOSTLY * layer.more_ns[0]


@rule(
    limits={"worth": Limit(0.02, "share", "ours: of a step, less is not worth a change")},
    causes=[
        "where it is Python (host): the module sleeps, waits or computes outside of operators on this rank"
    ],
    changes=["read what this module does on this rank alone: I/O, locks, logging, copies to the host"],
    explains=["slow_layer"],
)
def slow_on_rank(this: ProfileRule, case: ProfileCase) -> list[Finding]:
    """A place of the model takes longer on one rank than on the others in the same steps, for certain."""
    found = []
    for sums in case.steps:
        for one in case.on_ranks.get(sums.phase, ()):
            least, most = one.within_ns
            if not this.exceeds(least / sums.mean.total, "worth"):
                continue
            kind = WORDS.get(one.kind, one.kind)
            where = f"{one.place}{f', {kind}' if kind else ''}"
            words = (
                f"of a step: {least / NS_PER_MS:.3f} to {most / NS_PER_MS:.3f} ms more than the other ranks"
                f" in {one.steps} steps"
            )
            title = (
                f"Rank {one.rank} takes {one.more_ns / NS_PER_MS:.1f} ms longer than the others in {where}"
                f" ({one.part})"
            )
            evidence = [this.broke(words, least / sums.mean.total, "worth")]
            finding = takes(this, sums.mean, title, most, evidence)
            finding = _of_rank(case, sums, finding, one.rank, one.more_ns)
            least_s = least * sums.mean.steps / NS_PER_S
            found.append(replace(finding, least_s=least_s, phase=one.part, where=where))
    return found


def _differs(sums: PhaseSums, layer: str) -> str:
    """The module of a layer and its kind of work that differ most from the same of the other layers."""
    times = sums.by_place(lambda cell: (cell.place, cell.part, cell.kind))
    layers = layers_of(sums)

    def more(place: Place, part: str, kind: str) -> float:
        own, *others = (
            0.0
            if (amount := times.get((each, part, kind))) is None
            else max(amount.self_ns, amount.worked_ns)
            for each in (place, *layers)
        )
        return own - median(others)

    own = [key for key in times if key[0].name == layer and key[2] != COMMUNICATION]
    _, part, kind = max(own, key=lambda key: more(*key))
    return f"{part or 'the layer itself'} ({kind})"
