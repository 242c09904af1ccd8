"""How much steps of one kind differ, and so how much of a layer's time may be chance.

Rows are sums over a window: what a layer took in each step is not known. So all that single steps take longer
than the fastest one is taken to have hit the layer in question, which is the worst that chance can have done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flagscale_perf.profile.analysis.source import Profile

FEW_STEPS = 3  # profiled ones; fewer show no spread
SURE_STEPS = 6  # fewer have no interval that holds their median 19 times of 20
DOUBT = 0.05


def median_within(values: Sequence[float]) -> tuple[float, float] | None:
    """Between which two of these values the median of all such values lies, 19 times of 20, whatever their
    distribution; None for fewer than `SURE_STEPS`.
    """
    count = len(values)
    chances = np.cumsum([math.comb(count, place) / 2**count for place in range(count)])
    outside = int(np.searchsorted(chances, DOUBT / 2, side="right"))  # so many on each side are left out
    if not outside:
        return None
    ordered = sorted(values)
    return ordered[outside - 1], ordered[count - outside]


def spread_of(profile: Profile, phase: str) -> float | None:
    """How much longer than the fastest one steps are on average, as a share of the usual step. It is taken
    over the profiled steps and over all steps, on every rank, and the largest is returned. None if no rank
    has `FEW_STEPS` profiled ones.
    """
    found = []
    for rank in profile.ranks:
        profiled, clean = (
            steps["total_ns"][(steps["phase"] == phase) & (steps["total_ns"] > 0)]
            for steps in (rank.profiled, rank.clean)
        )
        if len(profiled) >= FEW_STEPS:
            ratios = [own / np.median(own) for own in (profiled, clean) if len(own)]
            found += [_excess(ratios[0]), _excess(np.concatenate(ratios))]
    return max(found, default=None)


def _excess(ratios: NDArray[np.float64]) -> float:
    return float(ratios.mean() - ratios.min())


def scatter_of(times: Sequence[float], place: int) -> float:
    """The median distance of the others from their median: layers that are alike differ by chance, too."""
    others = np.array([time for other, time in enumerate(times) if other != place])
    return float(np.median(np.abs(others - np.median(others))))
