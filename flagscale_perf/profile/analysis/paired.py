"""Layers, and Python of other modules, compared within each step, from single runs: what holds one step up
makes none of them slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flagscale_perf.profile.analysis.layers import OUTSIDE, Places
from flagscale_perf.profile.analysis.operators import COMMUNICATION, kind_of
from flagscale_perf.profile.analysis.source import Profile, Rank
from flagscale_perf.profile.analysis.sums import PhaseSums
from flagscale_perf.profile.analysis.timings import files_of
from flagscale_perf.profile.calls import Calls
from flagscale_perf.spine.chance import median_within

FEW_STEPS, FEW_LAYERS = 3, 3  # fewer show no spread
DEALS = 4000  # of ratios to layers; whoever asks again gets the same answer
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


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
        places = Places(profile)
        names = [place.name for place in sums.places if place.number is not None]
        others = [place.name for place in sums.places if place.number is None and place.name != OUTSIDE]
        found = (_on_rank(rank, sums.phase, places, [*names, *others]) for rank in profile.ranks)
        ranks = [each for each in found if each.has_runs.any()]
        count = min((len(each.taken_ns) for each in ranks), default=0)
        if count < FEW_STEPS or len(names) < FEW_LAYERS:
            return None
        on_all = np.all([each.has_runs[:count] for each in ranks], axis=0)
        taken = np.stack([each.taken_ns[:count, : len(names)][on_all] for each in ranks])
        runs = (taken > 0).sum(0)
        mean = np.divide(taken.sum(0), runs, out=np.full(runs.shape, np.nan), where=runs > 0)
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
    """As in `LayerTimes`, of one rank, with a column for each place; whether a step has its runs."""

    taken_ns: Floats
    python_ns: Floats
    total_ns: Floats
    has_runs: Flags


def _on_rank(rank: Rank, phase: str, places: Places, names: Sequence[str]) -> _OnRank:
    """What each place took in each profiled step of this rank, in their order."""
    profiled = rank.profiled.where(rank.profiled["phase"] == phase)
    order = np.argsort(profiled["number"])
    steps, total_ns = profiled["number"][order], profiled["total_ns"][order].astype(np.float64)
    host, device, python = (np.zeros((len(steps), len(names))) for _ in range(3))
    has_runs = np.zeros(len(steps), bool)
    for calls in files_of(rank):
        if isinstance(calls, Calls):
            place, is_python = _places(calls, places, rank.place.get("pipeline"), names)
            of_step = np.isin(calls.columns["step"], steps)
            has_runs[np.searchsorted(steps, np.unique(calls.columns["step"][of_step]))] = True
            meant = (place >= 0) & of_step
            for sums, name, chosen in (
                (host, "self_ns", meant),
                (device, "device_ns", meant),
                (python, "self_ns", meant & is_python),
            ):
                if name in calls.columns:
                    step = np.searchsorted(steps, calls.columns["step"][chosen])
                    np.add.at(sums, (step, place[chosen]), calls.columns[name][chosen])
    return _OnRank(np.maximum(host, device), python, total_ns, has_runs)


def _places(
    calls: Calls, places: Places, stage: int | None, names: Sequence[str]
) -> tuple[NDArray[np.int64], Flags]:
    """The place of each run among the names, -1 for none and for a collective; whether it is Python."""
    known = {name: number for number, name in enumerate(names)}
    rows, row_of = calls.distinct("part", "module", "op")
    found, is_python = [], []
    for row in rows:
        part, module, op = (calls.names[number] for number in row)
        is_collective = kind_of(op, part, module) == COMMUNICATION
        found.append(-1 if is_collective else known.get(places.of(module, stage).name, -1))
        is_python.append(not op)
    return np.array(found, np.int64)[row_of], np.array(is_python, bool)[row_of]
