"""Layers compared within each step, from single runs: what holds a whole step up makes no layer slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flagscale_perf.profile.analysis.layers import OUTSIDE, Places
from flagscale_perf.profile.analysis.operators import COMMUNICATION, HOST, kind_of
from flagscale_perf.profile.analysis.source import UNKNOWN, Profile, Rank
from flagscale_perf.profile.analysis.sums import PhaseSums
from flagscale_perf.profile.analysis.timings import files_of
from flagscale_perf.profile.calls import Calls
from flagscale_perf.spine.chance import median_within

FEW_STEPS, FEW_LAYERS = 3, 3  # fewer show no spread
DEALS = 4000  # of ratios to layers; whoever asks again gets the same answer
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Column: TypeAlias = Callable[[Rank, str, str, str], int]  # of a part, module and operator; -1 for none
MOSTLY = 0.8  # of what a place takes longer: then it is of one kind of work


@dataclass(frozen=True)
class Slower:
    """A layer beside the median layer of the same steps: the median of all steps, and its interval.

    Attributes:
        ratio, ratios: the layer's time over the median layer's, and the interval of that.
        more_ns: interval of the time beyond the median layer's.
        chance: that any of several layers that are alike would be so much slower in these steps.
    """

    name: str
    steps: int
    ratio: float
    ratios: tuple[float, float]
    more_ns: tuple[float, float]
    chance: float


@dataclass(frozen=True)
class LayerTimes:
    """Layers' times in one kind of step.

    Attributes:
        names: the layers' names.
        taken_ns: a row for each step, a column for each layer: on the mean rank that has the layer, without
            collectives; where there is a device, that of its kernels or of the host, whichever is longer. Not
            a number where it did not run.
    """

    names: Sequence[str]
    taken_ns: Floats

    @classmethod
    def of(cls, profile: Profile, sums: PhaseSums) -> LayerTimes | None:
        """None where too few steps or layers have their runs recorded."""
        places = Places(profile)
        names = [place.name for place in sums.places if place.number is not None]
        columns = {name: number for number, name in enumerate(names)}

        def column(rank: Rank, part: str, module: str, op: str) -> int:
            is_collective = kind_of(op, part, module) == COMMUNICATION
            name = places.of(module, rank.place.get("pipeline")).name
            return -1 if is_collective else columns.get(name, -1)

        found = (_on_rank(rank, sums.phase, column, len(names)) for rank in profile.ranks)
        ranks = [(times, has_runs) for times, has_runs in found if has_runs.any()]
        count = min((len(times) for times, _ in ranks), default=0)
        if count < FEW_STEPS or len(names) < FEW_LAYERS:
            return None
        on_all = np.all([has_runs[:count] for _, has_runs in ranks], axis=0)
        taken = np.stack([times[:count][on_all] for times, _ in ranks])
        runs = (taken > 0).sum(0)
        mean = np.divide(taken.sum(0), runs, out=np.full(runs.shape, np.nan), where=runs > 0)
        mean = mean[(runs > 0).sum(1) >= FEW_LAYERS]
        return cls(names, mean) if len(mean) >= FEW_STEPS else None

    def slower(self) -> list[Slower]:
        """Every layer that ran in all of these steps, against the median one."""
        own = np.flatnonzero(~np.isnan(self.taken_ns).any(0))
        usual = np.nanmedian(self.taken_ns, axis=1, keepdims=True)
        ratios, more = (self.taken_ns / usual)[:, own], (self.taken_ns - usual)[:, own]
        return [
            Slower(self.names[n], len(ratio), float(np.median(ratio)), _within(ratio), _within(ns), chance)
            for n, ratio, ns, chance in zip(own.tolist(), ratios.T, more.T, _chances(ratios), strict=True)
        ]


@dataclass(frozen=True)
class OnRank:
    """A part of the step that takes longer in one place of the model on one rank than on the others.

    Attributes:
        part: "forward", "backward" ...
        kind: of work, where four fifths of it are of one kind; else "".
        steps: how many were compared; `first`, `last`: their iterations, None where the host counts none.
        more_ns: beyond the median of the other ranks in the same step: the median of the steps.
        within_ns: the interval of that.
    """

    rank: int
    part: str
    place: str
    kind: str
    steps: int
    first: int | None
    last: int | None
    more_ns: float
    within_ns: tuple[float, float]


def slow_on_ranks(profile: Profile, sums: PhaseSums) -> list[OnRank]:
    """For each rank and part of the step, the place that takes longest beyond the same on other ranks, where
    it does so for certain, and longer than any other place there may.
    """
    keys = dict.fromkeys(
        (cell.phase, cell.place.name, cell.kind)
        for cell in sums.cells
        if cell.kind != COMMUNICATION and cell.place.name != OUTSIDE
    )
    places, columns = Places(profile), {key: number for number, key in enumerate(keys)}

    def column(rank: Rank, part: str, module: str, op: str) -> int:
        kind = kind_of(op, part, module) if op else HOST
        return columns.get((part, places.of(module, rank.place.get("pipeline")).name, kind), -1)

    found = [(rank, *_on_rank(rank, sums.phase, column, len(columns))) for rank in profile.ranks]
    ranks = [(rank, times) for rank, times, has_runs in found if len(times) >= FEW_STEPS and has_runs.all()]
    count = min((len(times) for _, times in ranks), default=0)
    if len(ranks) < 2:
        return []
    taken = np.stack([times[:count] for _, times in ranks])
    taken[:, :, :] = np.where((taken > 0).any(axis=1, keepdims=True), taken, np.nan)  # a stage has its own
    return [
        one
        for number, (rank, _) in enumerate(ranks)
        for part in dict.fromkeys(key[0] for key in keys)
        if (one := _slowest(rank, part, columns, _beyond(taken, number), sums.phase)) is not None
    ]


def _beyond(taken: Floats, number: int) -> Floats:
    """What a rank takes beyond the median other one, by step and column; 0 where no other has that."""
    others = np.delete(taken, number, axis=0)
    has_others = ~np.isnan(others).all(axis=(0, 1))
    usual = np.zeros(taken.shape[1:])
    usual[:, has_others] = np.nanmedian(others[:, :, has_others], axis=0)
    return np.where(has_others, np.nan_to_num(taken[number] - usual), 0.0)


def _slowest(
    rank: Rank, part: str, columns: Mapping[tuple[str, str, str], int], more: Floats, phase: str
) -> OnRank | None:
    by_place: dict[str, dict[str, Floats]] = {}
    for (own, place, kind), column in columns.items():
        if own == part:
            by_place.setdefault(place, {})[kind] = more[:, column]
    sums = {place: np.sum([*kinds.values()], axis=0) for place, kinds in by_place.items()}
    ordered = sorted(sums, key=lambda place: -float(np.median(sums[place])))
    within = {place: median_within(sums[place].tolist()) for place in ordered[:2]}
    first, *rest = within.values()
    if first is None or first[0] <= max([0.0, *(each[1] for each in rest if each)]):
        return None
    place, kinds = ordered[0], by_place[ordered[0]]
    longest = max(kinds, key=lambda kind: float(np.median(kinds[kind])))
    middle = float(np.median(sums[place]))
    is_one = float(np.median(kinds[longest])) >= MOSTLY * middle
    profiled = rank.profiled["iteration"][rank.profiled["phase"] == phase]
    known = profiled[profiled != UNKNOWN].tolist()
    steps = (min(known), max(known)) if known else (None, None)
    return OnRank(rank.rank, part, place, longest if is_one else "", len(more), *steps, middle, first)


def _within(values: Floats) -> tuple[float, float]:
    return median_within(values.tolist()) or (float(values.min()), float(values.max()))


def _chances(ratios: Floats) -> list[float]:
    """How often some column has ranks as high together if the values are dealt to the columns at random."""
    ranks = ratios.ravel().argsort().argsort().astype(np.int32)
    random = np.random.default_rng(0)
    dealt = (random.permuted(ranks).reshape(ratios.shape).sum(0) for _ in range(DEALS))
    highest = np.array([sums.max(initial=0) for sums in dealt])
    own = ranks.reshape(ratios.shape).sum(0)
    chances: list[float] = (highest[:, None] >= own).mean(0).tolist()
    return chances


def _on_rank(rank: Rank, phase: str, column: Column, count: int) -> tuple[Floats, Flags]:
    """Time in each column in each profiled step of this rank, in their order; whether a step has its runs."""
    steps = np.sort(rank.profiled["number"][rank.profiled["phase"] == phase])
    host, device = (np.zeros((len(steps), count)) for _ in range(2))
    has_runs = np.zeros(len(steps), bool)
    for calls in files_of(rank):
        if isinstance(calls, Calls):
            rows, place = calls.distinct("part", "module", "op")
            texts = ((calls.names[number] for number in row) for row in rows)
            columns = np.array([column(rank, *each) for each in texts], np.int64)[place]
            meant = (columns >= 0) & np.isin(calls.columns["step"], steps)
            step = np.searchsorted(steps, calls.columns["step"][meant])
            has_runs[np.unique(step)] = True
            for sums, name in ((host, "self_ns"), (device, "device_ns")):
                if name in calls.columns:
                    np.add.at(sums, (step, columns[meant]), calls.columns[name][meant])
    return np.maximum(host, device), has_runs
