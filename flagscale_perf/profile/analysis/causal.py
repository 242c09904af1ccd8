"""How much of a planted delay the step feels: slopes fitted over delayed and untouched steps of all ranks.

A step lasts from the end of the step before it to its own end, averaged over the ranks. A wait at the end of
one rank's step may only show in another rank's next step, so a step is explained by the delays in it and in
the step before; the slope is the sum of both. Other programs only ever make a step longer: the line is laid
through the lower quartile of the steps, not through their mean. Machines also slow down and recover, so each
round, in which every kind of step comes once, has a level of its own: only steps of one round are compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flagscale_perf.profile.analysis.operators import COMMUNICATION
from flagscale_perf.profile.analysis.source import Profile
from flagscale_perf.profile.analysis.sums import PhaseSums

MIN_STEPS = 5  # of each size, and left as they are
QUANTILE = 0.25
RESAMPLED, INTERVAL = 400, (0.025, 0.975)
MOST = 0.5  # of a delay: what is above is felt for the most part, what is below is hidden for the most part
NARROW = 0.25  # an interval of this width says how much is felt, also where that is about half
_ROUNDS = 40  # of weighting anew; then the line no longer moves
_CLOSE = 1e-3  # of the steps' spread: nearer to the line all steps weigh the same
Floats = NDArray[np.float64]
_Place = tuple[int, str, str]
FORWARD = ("forward", "recompute")  # in which a module's delay is


@dataclass(frozen=True)
class Effect:
    """How much the step felt of the delays in one place.

    Attributes:
        rank, module, op: the place; "" for none.
        steps: that were delayed there.
        planted_ns: by size, what was planted in one of them, and how much longer that step was.
        slope: change of the step by what was planted; None where `reason` says why.
        low, high: in which 95 % of the slopes lie that other steps of the same sort could have given.
        own_ns: time of that place in a profiled step, of a module its forward pass without collectives; None:
            not known.
    """

    rank: int
    module: str
    op: str
    steps: int
    planted_ns: Sequence[tuple[float, float]]
    slope: float | None
    low: float | None
    high: float | None
    own_ns: float | None
    reason: str = ""

    @property
    def name(self) -> str:
        """For example `rank 1, decoder.layers.0`."""
        return ", ".join(filter(None, [f"rank {self.rank}", self.module or "the model", self.op]))

    @property
    def conclusion(self) -> str:
        """What the interval says, in words; if it is too wide to say anything, what would be needed."""
        if self.slope is None or self.low is None or self.high is None:
            return self.reason
        if self.low > MOST:
            return "felt for the most part"
        if self.high < MOST:
            return "hidden for the most part"
        if self.high - self.low <= NARROW:
            return "about half is felt"
        # an interval narrows with the square root of the rounds, and in proportion to the delays
        too_wide = max(self.high - self.slope, self.slope - self.low) / max(
            abs(self.slope - MOST), NARROW / 2
        )
        rounds = math.ceil(self.steps / max(1, len(self.planted_ns)) * too_wide**2)
        return f"not conclusive: some {rounds} rounds are needed, or delays {too_wide:.1f} times as long"

    @property
    def felt_ns(self) -> float | None:
        """How much shorter a step would be without this place's own time, as far as the slope tells."""
        if self.own_ns is None or self.slope is None:
            return None
        return self.own_ns * min(1.0, max(0.0, self.slope))


@dataclass(frozen=True)
class Causal:
    """The result of one experiment.

    Attributes:
        effects: the place first that steps feel most for sure.
        steps: of the experiment; untouched: those of them that were left as they are.
        alike_ns: by how much two sorts of steps differ that were both left as they are, with its interval:
            the error of the figures above. None where they are too few.
    """

    effects: Sequence[Effect]
    steps: int
    untouched: int
    alike_ns: tuple[float, float, float] | None


@dataclass(frozen=True)
class _Steps:
    """The steps, averaged over all ranks: one value each.

    Attributes:
        took_ns: from the end of the one before.
        planted_ns: by place.
        before_ns: the same of the step before.
        asked_ns: by place; 0 for the others.
        second: 1 for the second arm that is left as it is.
        round: number of it, from 0.
    """

    took_ns: Floats
    planted_ns: Mapping[_Place, Floats]
    before_ns: Mapping[_Place, Floats]
    asked_ns: Mapping[_Place, NDArray[np.int64]]
    second: Floats
    round: NDArray[np.int64]

    @property
    def untouched(self) -> NDArray[np.bool_]:
        """Mask of the steps without a planted delay."""
        return np.asarray(sum(self.asked_ns.values()) == 0, np.bool_)


def causal_of(profile: Profile, sums: Mapping[str, PhaseSums]) -> Causal | None:
    """The result of the causal experiment; None if no delays were planted."""
    steps = _steps_of(profile)
    if steps is None:
        return None
    reasons = {place: _reason(steps, place) for place in steps.planted_ns}
    places = [place for place, reason in reasons.items() if not reason]
    lines, alike, usual_ns = _lines(steps, places) if places else ({}, None, _usual_ns(steps))
    effects = []
    for place, reason in reasons.items():
        slope, low, high = lines.get(place, (None, None, None))
        delayed, own_ns = int((steps.asked_ns[place] > 0).sum()), _own_ns(profile, sums, place)
        sizes = _by_size(steps, place, usual_ns)
        effects.append(Effect(*place, delayed, sizes, slope, low, high, own_ns, reason))
    effects.sort(key=lambda effect: np.inf if effect.low is None else -round(effect.low, 2))
    return Causal(effects, len(steps.took_ns), int(steps.untouched.sum()), alike)


def _steps_of(profile: Profile) -> _Steps | None:
    ends: dict[int, dict[int, int]] = {}
    arms: dict[int, tuple[_Place | None, int, int]] = {}
    planted: dict[int, float] = {}
    for rank in profile.ranks:
        delays = rank.delays
        own = ends[rank.rank] = {}
        for one in delays.records():
            iteration = one["iteration"]
            own[iteration] = one["start_ns"] + one["total_ns"]
            place = None if one["delayed_rank"] is None else (one["delayed_rank"], one["module"], one["op"])
            arms[iteration] = (place, one["asked_ns"], one["is_second"])
            planted[iteration] = planted.get(iteration, 0.0) + one["planted_ns"]
    places = sorted({place for place, *_ in arms.values() if place is not None})
    if not places:
        return None
    took = {
        iteration: [own[iteration] - own[iteration - 1] for own in ends.values()
                    if iteration in own and iteration - 1 in own]
        for iteration in sorted(arms)
    }  # fmt: skip
    chosen = [iteration for iteration, each in took.items() if each]

    def of(place: _Place, iterations: list[int]) -> Floats:
        return np.array([planted[each] if arms[each][0] == place else 0.0 for each in iterations])

    return _Steps(
        np.array([np.mean(took[each]) for each in chosen]),
        {place: of(place, chosen) for place in places},
        {place: of(place, [each - 1 for each in chosen]) for place in places},
        {place: np.array([arms[each][1] if arms[each][0] == place else 0 for each in chosen], np.int64)
         for place in places},
        np.array([float(arms[each][2]) for each in chosen]),
        (np.array(chosen, np.int64) - min(arms)) // len(set(arms.values())),
    )  # fmt: skip


def _reason(steps: _Steps, place: _Place) -> str:
    asked, planted = steps.asked_ns[place], steps.planted_ns[place]
    fewest = min([(asked == size).sum() for size in np.unique(asked[asked > 0])], default=0)
    if not planted.any():
        return (
            "nothing was planted: the place did not run, as in a compiled model, or its rank is not profiled"
        )
    if min(fewest, steps.untouched.sum()) < MIN_STEPS:
        return f"fewer than {MIN_STEPS} steps of each sort"
    return ""


def _lines(
    steps: _Steps, places: Sequence[_Place]
) -> tuple[dict[_Place, tuple[float, float, float]], tuple[float, float, float], Floats]:
    """The slope of each place with its confidence interval, the difference between untouched steps, and how
    long each step would have taken untouched.
    """
    levels = (steps.round[:, None] == np.unique(steps.round)).astype(float)
    columns = [steps.second]
    for place in places:
        columns += [steps.planted_ns[place], steps.before_ns[place]]
    whole = np.column_stack([*columns, levels])
    found = _quantile_lines(whole, steps.took_ns, np.ones((1, len(whole))))[0]
    others = _quantile_lines(whole, steps.took_ns, _resampled(steps))

    def interval(chosen: slice) -> tuple[float, float, float]:
        low, high = np.quantile(others[:, chosen].sum(1), INTERVAL)
        return float(found[chosen].sum()), float(low), float(high)

    slopes = {place: interval(slice(1 + 2 * at, 3 + 2 * at)) for at, place in enumerate(places)}
    return slopes, interval(slice(0, 1)), levels @ found[len(columns) :]


def _usual_ns(steps: _Steps) -> Floats:
    """How long an untouched step takes, where no lines were fitted."""
    untouched = steps.took_ns[steps.untouched]
    return np.full(len(steps.took_ns), np.quantile(untouched, QUANTILE) if len(untouched) else np.nan)


def _resampled(steps: _Steps) -> Floats:
    """How often each step counts in each resampling; every sort of step keeps its number."""
    random = np.random.default_rng(0)
    sorts = np.column_stack([*steps.asked_ns.values(), steps.second])
    _, sort = np.unique(sorts, axis=0, return_inverse=True)
    made = np.zeros((RESAMPLED, len(sort)))
    for each in np.unique(sort):
        own = np.flatnonzero(sort == each)
        made[:, own] = random.multinomial(len(own), np.full(len(own), 1 / len(own)), RESAMPLED)
    return made


def _quantile_lines(whole: Floats, took: Floats, counts: Floats) -> Floats:
    """Coefficients of a quantile regression for each row of counts, by iteratively reweighted least
    squares.
    """
    scale = np.maximum(np.abs(whole).max(0), 1e-9)
    unit = float(np.median(np.abs(took - np.median(took)))) or 1.0
    made, right = whole / scale, took / unit
    ridge = 1e-12 * np.eye(made.shape[1])
    weights = counts
    for _ in range(_ROUNDS):
        left = np.einsum("bn,ni,nj->bij", weights, made, made, optimize=True)
        found = np.linalg.solve(left + ridge, np.einsum("bn,ni,n->bi", weights, made, right)[..., None])[
            ..., 0
        ]
        off = right - found @ made.T
        weights = counts * np.where(off > 0, QUANTILE, 1 - QUANTILE) / np.maximum(np.abs(off), _CLOSE)
    lines: Floats = found * unit / scale
    return lines


def _by_size(steps: _Steps, place: _Place, usual_ns: Floats) -> list[tuple[float, float]]:
    """For each delay size: what was planted, and how much longer the step was."""
    asked, longer_ns = steps.asked_ns[place], steps.took_ns - usual_ns
    return [
        (
            float(np.median(steps.planted_ns[place][asked == size])),
            float(np.quantile(longer_ns[asked == size], QUANTILE)),
        )
        for size in np.unique(asked[asked > 0])
    ] if steps.untouched.any() else []  # fmt: skip


def _own_ns(profile: Profile, sums: Mapping[str, PhaseSums], place: _Place) -> float | None:
    rank, module, op = place
    numbers = [number for number, each in enumerate(profile.ranks) if each.rank == rank]
    train = sums.get("train")
    if train is None or not numbers:
        return None
    return sum(
        cell.self_ns
        for cell in train.cells
        if cell.rank == numbers[0]
        and (cell.op == op if op else cell.kind != COMMUNICATION)
        and (not module or cell.module == module or cell.module.startswith(f"{module}."))
        and (bool(op and not module) or (cell.phase in FORWARD and bool(cell.module)))
    )
