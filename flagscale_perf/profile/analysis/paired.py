"""Layers, and Python of other modules, compared within each step, from single runs: what holds one step up
makes none of them slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flagscale_perf.profile.analysis.layers import OUTSIDE, Places
from flagscale_perf.profile.analysis.operators import COMMUNICATION, HOST, kind_of
from flagscale_perf.profile.analysis.source import Profile, Rank
from flagscale_perf.profile.analysis.sums import PhaseSums
from flagscale_perf.profile.analysis.timings import files_of
from flagscale_perf.profile.calls import Calls
from flagscale_perf.spine.chance import SURE_STEPS, median_within

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
class Python:
    """Python of a module that is no layer beyond that of the median layer of the same steps, on the mean
    rank: the median of all steps, and its interval.

    Attributes:
        share, shares: of the step.
        more_ns: the interval of the time.
    """

    name: str
    steps: int
    share: float
    shares: tuple[float, float]
    more_ns: tuple[float, float]


@dataclass(frozen=True)
class LayerTimes:
    """What layers, and other modules in Python, took in one kind of step; a row of each table is a step.

    Attributes:
        names: the layers' names; the other modules' are in `others`.
        taken_ns: a column for each layer: on the mean rank that has the layer, without collectives; where
            there is a device, that of its kernels or of the host, whichever is longer. Not a number where it
            did not run.
        python_ns: a column for each layer, then for each other module, in Python on the mean rank.
        total_ns: the steps' own times on the mean rank.
    """

    names: Sequence[str]
    others: Sequence[str]
    taken_ns: Floats
    python_ns: Floats
    total_ns: Floats

    @classmethod
    def of(cls, profile: Profile, sums: PhaseSums) -> LayerTimes | None:
        """None where too few steps or layers have their runs recorded."""
        (names, others), places = _names_of(sums), Places(profile)
        columns = {name: number for number, name in enumerate([*names, *others])}

        def column(rank: Rank, part: str, module: str, op: str) -> int:
            """Python has the second half of the columns."""
            is_collective = kind_of(op, part, module) == COMMUNICATION
            own = columns.get(places.of(module, rank.place.get("pipeline")).name)
            return -1 if is_collective or own is None else own + len(columns) * (not op)

        found = (_on_rank(rank, sums.phase, column, 2 * len(columns)) for rank in profile.ranks)
        ranks = [each for each in found if each.has_runs.any()]
        count = min((len(each.total_ns) for each in ranks), default=0)
        if count < FEW_STEPS or len(names) < FEW_LAYERS:
            return None
        on_all = np.all([each.has_runs[:count] for each in ranks], axis=0)
        mean, runs = _mean(np.stack([each.taken_ns(2)[:count, : len(names)][on_all] for each in ranks]))
        python, total = (
            np.mean([each[:count][on_all] for each in tables], axis=0)
            for tables in zip(*((each.python_ns, each.total_ns) for each in ranks), strict=True)
        )
        meant = ((runs > 0).sum(1) >= FEW_LAYERS) & (total > 0)
        if meant.sum() < FEW_STEPS:
            return None
        return cls(names, others, mean[meant], python[meant], total[meant])

    def slower(self) -> list[Slower]:
        """Every layer that ran in all of these steps, against the median one."""
        own = np.flatnonzero(~np.isnan(self.taken_ns).any(0))
        usual = np.nanmedian(self.taken_ns, axis=1, keepdims=True)
        ratios, more = (self.taken_ns / usual)[:, own], (self.taken_ns - usual)[:, own]
        return [
            Slower(self.names[n], len(ratio), float(np.median(ratio)), _within(ratio), _within(ns), chance)
            for n, ratio, ns, chance in zip(own.tolist(), ratios.T, more.T, _chances(ratios), strict=True)
        ]

    def python(self) -> list[Python]:
        """Of every module that is no layer."""
        layers, others = np.split(self.python_ns, [len(self.names)], axis=1)
        more = others - np.median(layers, axis=1, keepdims=True)
        shares = more / self.total_ns[:, None]
        return [
            Python(name, len(share), float(np.median(share)), _within(share), _within(ns))
            for name, share, ns in zip(self.others, shares.T, more.T, strict=True)
        ]


@dataclass(frozen=True)
class OnRank:
    """A part of the step that takes longer in one place of the model on one rank than on the others.

    Attributes:
        part: "forward", "backward" ...
        kind: of work, where four fifths of it are of one kind; else "".
        steps: how many were compared.
        more_ns: beyond the median of the other ranks in the same step: the median of the steps.
        within_ns: the interval of that.
    """

    rank: int
    part: str
    place: str
    kind: str
    steps: int
    more_ns: float
    within_ns: tuple[float, float]


def slow_on_ranks(profile: Profile, sums: PhaseSums) -> list[OnRank]:
    """For each rank and part of the step, the place that takes longest beyond the same on other ranks, where
    it does so for certain, and longer than any other place there may.
    """
    places, columns = Places(profile), _columns_of(sums)

    def column(rank: Rank, part: str, module: str, op: str) -> int:
        kind = kind_of(op, part, module) if op else HOST
        return columns.get((part, places.of(module, rank.place.get("pipeline")).name, kind), -1)

    found = [(rank, _on_rank(rank, sums.phase, column, len(columns))) for rank in profile.ranks]
    ranks = [(rank, each.taken_ns()) for rank, each in found if each.has_runs.all()]
    count = min((len(times) for _, times in ranks), default=0)
    if len(ranks) < 2 or count < SURE_STEPS:
        return []
    taken = np.stack([times[:count] for _, times in ranks])
    taken = np.where((taken > 0).any(axis=1, keepdims=True), taken, np.nan)  # a stage has its own places
    parts = dict.fromkeys(part for part, _, _ in columns)
    made = (
        _slowest(rank, part, columns, _beyond(taken, number))
        for number, (rank, _) in enumerate(ranks)
        for part in parts
    )
    return [one for one in made if one is not None]


def _names_of(sums: PhaseSums) -> tuple[list[str], list[str]]:
    """Of the layers, and of other modules."""
    names = [place.name for place in sums.places if place.number is not None]
    return names, [place.name for place in sums.places if place.number is None and place.name != OUTSIDE]


def _columns_of(sums: PhaseSums) -> dict[tuple[str, str, str], int]:
    """Each kind of work in each place in each part of the step, numbered; without collectives."""
    keys = dict.fromkeys(
        (cell.phase, cell.place.name, cell.kind)
        for cell in sums.cells
        if cell.kind != COMMUNICATION and cell.place.name != OUTSIDE
    )
    return {key: number for number, key in enumerate(keys)}


def _beyond(taken: Floats, number: int) -> Floats:
    """What a rank takes beyond the median other one, by step and column; 0 where no other has that."""
    others = np.delete(taken, number, axis=0)
    has_others = ~np.isnan(others).all(axis=(0, 1))
    usual = np.zeros(taken.shape[1:])
    usual[:, has_others] = np.nanmedian(others[:, :, has_others], axis=0)
    return np.where(has_others, np.nan_to_num(taken[number] - usual), 0.0)


def _slowest(
    rank: Rank, part: str, columns: Mapping[tuple[str, str, str], int], more: Floats
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
    return OnRank(rank.rank, part, place, longest if is_one else "", len(more), middle, first)


def _mean(taken: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """The mean over the ranks that have any, not a number where none has, and how many have."""
    runs = (taken > 0).sum(0)
    return np.divide(taken.sum(0), runs, out=np.full(runs.shape, np.nan), where=runs > 0), runs


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


class _OnRank(NamedTuple):
    """Times of one rank, a row for each profiled step, in their order.

    Attributes:
        host_ns, device_ns: in each column.
        total_ns: of the step.
        has_runs: whether the runs of the step were recorded.
    """

    host_ns: Floats
    device_ns: Floats
    total_ns: Floats
    has_runs: Flags

    def taken_ns(self, halves: int = 1) -> Floats:
        """Of the host or the device, whichever took longer; the columns' halves added up, where there are."""
        host, device = (sum(np.split(each, halves, axis=1)) for each in (self.host_ns, self.device_ns))
        return np.maximum(host, device)

    @property
    def python_ns(self) -> Floats:
        """The second half of the host's columns."""
        return np.split(self.host_ns, 2, axis=1)[1]


def _on_rank(rank: Rank, phase: str, column: Column, count: int) -> _OnRank:
    profiled = rank.profiled.where(rank.profiled["phase"] == phase)
    order = np.argsort(profiled["number"])
    steps, total_ns = profiled["number"][order], profiled["total_ns"][order].astype(np.float64)
    host, device = (np.zeros((len(steps), count)) for _ in range(2))
    has_runs = np.zeros(len(steps), bool)
    for calls in files_of(rank):
        if isinstance(calls, Calls):
            rows, place = calls.distinct("part", "module", "op")
            texts = ((calls.names[number] for number in row) for row in rows)
            columns = np.array([column(rank, *each) for each in texts], np.int64)[place]
            of_step = np.isin(calls.columns["step"], steps)
            has_runs[np.searchsorted(steps, np.unique(calls.columns["step"][of_step]))] = True
            meant = (columns >= 0) & of_step
            step = np.searchsorted(steps, calls.columns["step"][meant])
            for sums, name in ((host, "self_ns"), (device, "device_ns")):
                if name in calls.columns:
                    np.add.at(sums, (step, columns[meant]), calls.columns[name][meant])
    return _OnRank(host, device, total_ns, has_runs)
