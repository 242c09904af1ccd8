"""Measures what profiling costs: each profiled step against the clean ones just before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flagscale_perf.profile.analysis.source import Profile
from flagscale_perf.spine.averages import median


@dataclass(frozen=True)
class Observer:
    """The cost of profiling, for one kind of step.

    Attributes:
        ratios: each profiled step over the mean of the clean ones beside it.
        clean: each clean step over the clean one before it: what differs without any profiler.
        outside_ns: time to start and stop the profiler, outside of the steps, for each profiled step.
        reduce_ns: time to make rows, on a thread beside the training, for each profiled step.
        clean_ns: the median clean step.
    """

    ratios: Sequence[float]
    clean: Sequence[float]
    outside_ns: float | None
    reduce_ns: float | None
    clean_ns: float | None = None

    @property
    def ratio(self) -> float | None:
        """The median ratio; None without a clean step."""
        return median(self.ratios) if self.ratios else None

    @property
    def lost(self) -> float | None:
        """The training's loss by a profiled step, starting and stopping included, in clean steps."""
        if self.ratio is None or self.outside_ns is None or not self.clean_ns:
            return None
        return self.ratio + self.outside_ns / self.clean_ns

    @property
    def spread(self) -> float | None:
        """Half the interquartile range of the ratios; None for fewer than 2."""
        return _half_quartiles(self.ratios)

    @property
    def noise(self) -> float | None:
        """Half the interquartile range of `clean`; None for fewer than 2."""
        return _half_quartiles(self.clean)

    @property
    def clean_ratio(self) -> float | None:
        """The median of `clean`; None without any."""
        return median(self.clean) if self.clean else None

    @property
    def words(self) -> str:
        """For example `x1.040 +- 0.010, 12 pairs; x1.130 with starting and stopping the profiler`."""
        if self.ratio is None:
            return "not known: no clean step beside a profiled one"
        within = "" if self.spread is None else f" +- {self.spread:.3f}"
        lost = "" if self.lost is None else f"; x{self.lost:.3f} with starting and stopping the profiler"
        return f"x{self.ratio:.3f}{within}, {len(self.ratios)} pairs{lost}"

    def as_dict(self) -> dict[str, float | int | None]:
        """Its content as JSON-ready data."""
        return {
            "ratio": self.ratio,
            "spread": self.spread,
            "pairs": len(self.ratios),
            "lost": self.lost,
            "clean_ratio": self.clean_ratio,
            "clean_spread": self.noise,
            "clean_pairs": len(self.clean),
            "outside_ns_per_step": self.outside_ns,
            "reduce_ns_per_step": self.reduce_ns,
        }


def observers_of(profile: Profile) -> dict[str, Observer]:
    """An `Observer` for each kind of step."""
    return {phase: _of(profile, phase) for phase in profile.phases()}


def _of(profile: Profile, phase: str) -> Observer:
    ratios: list[float] = []
    clean: list[float] = []
    for rank in profile.ranks:
        steps = rank.steps.where(rank.steps["phase"] == phase)
        for window in np.unique(steps["window"]):
            own = steps.where(steps["window"] == window)
            own = own.where(np.argsort(own["start_ns"], kind="stable"))
            _pair(own["total_ns"].tolist(), own["is_profiled"].tolist(), ratios, clean)
    times = np.concatenate([rank.clean["total_ns"][rank.clean["phase"] == phase] for rank in profile.ranks])
    profiled = sum(len(rank.profiled) for rank in profile.ranks)
    outside = [rank.windows["begin_ns"] + rank.windows["end_ns"] for rank in profile.ranks]
    reduce = [rank.windows["reduce_ns"] for rank in profile.ranks]
    clean_ns = float(np.median(times)) if len(times) else None
    return Observer(ratios, clean, _mean(outside, profiled), _mean(reduce, profiled), clean_ns)


def _pair(times: Sequence[int], profiled: Sequence[int], ratios: list[float], clean: list[float]) -> None:
    before: int | None = None
    for place, (time, is_profiled) in enumerate(zip(times, profiled, strict=True)):
        if is_profiled:
            beside = [
                times[other]
                for other in (place - 1, place + 1)
                if 0 <= other < len(times) and not profiled[other] and times[other]
            ]
            if beside:
                ratios.append(time * len(beside) / sum(beside))
        else:
            if before:
                clean.append(time / before)
            before = time


def _mean(values: Sequence[np.ndarray], steps: int) -> float | None:
    known = [one for one in values if len(one)]
    return float(sum(one.sum() for one in known)) / steps if known and steps else None


def _half_quartiles(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    low, high = np.quantile(np.asarray(values), (0.25, 0.75))
    return float(high - low) / 2
