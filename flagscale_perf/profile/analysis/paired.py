"""Layers compared within each step, from single runs: what holds a whole step up makes no layer slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flagscale_perf.profile.analysis.layers import Places
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
        found = (_on_rank(rank, sums.phase, places, names) for rank in profile.ranks)
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


def _on_rank(rank: Rank, phase: str, places: Places, names: Sequence[str]) -> tuple[Floats, Flags]:
    """Time of each layer in each profiled step of this rank, in their order; whether a step has its runs."""
    steps = np.sort(rank.profiled["number"][rank.profiled["phase"] == phase])
    host, device = (np.zeros((len(steps), len(names))) for _ in range(2))
    has_runs = np.zeros(len(steps), bool)
    for calls in files_of(rank):
        if isinstance(calls, Calls):
            layer = _layers(calls, places, rank.place.get("pipeline"), names)
            meant = (layer >= 0) & np.isin(calls.columns["step"], steps)
            step = np.searchsorted(steps, calls.columns["step"][meant])
            has_runs[np.unique(step)] = True
            for sums, name in ((host, "self_ns"), (device, "device_ns")):
                if name in calls.columns:
                    np.add.at(sums, (step, layer[meant]), calls.columns[name][meant])
    return np.maximum(host, device), has_runs


def _layers(calls: Calls, places: Places, stage: int | None, names: Sequence[str]) -> NDArray[np.int64]:
    """The place of each run's layer among the names; -1 for none and for a collective."""
    known = {name: number for number, name in enumerate(names)}
    rows, place = calls.distinct("part", "module", "op")
    layers = []
    for row in rows:
        part, module, op = (calls.names[number] for number in row)
        is_collective = kind_of(op, part, module) == COMMUNICATION
        layers.append(-1 if is_collective else known.get(places.of(module, stage).name, -1))
    return np.array(layers, np.int64)[place]
