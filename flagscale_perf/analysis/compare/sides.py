"""The part of a comparison that does not depend on what was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from flagscale_perf.analysis.blocks import Line, Panel, Section, Series
from flagscale_perf.analysis.compare import bootstrap
from flagscale_perf.analysis.compare.compare import CompareOptions, Difference, Figure, relative
from flagscale_perf.analysis.compare.judge import Judge
from flagscale_perf.spine.errors import PerfError


class Run(Protocol):
    """One run of a side.

    Attributes:
        path: of its file.
        title: what it is called.
        skipped_lines: lines of the file that are no records.
    """

    @property
    def path(self) -> Path:
        """The file of the run."""

    @property
    def title(self) -> str:
        """The run's name."""

    @property
    def skipped_lines(self) -> int:
        """Lines of the run that were left out."""


def typical(times: Sequence[float]) -> dict[str, float | None]:
    """Mean and 95th percentile; at least one time."""
    return {"mean": bootstrap.mean(sorted(times)), "p95": bootstrap.percentile(times, 0.95)}


def figures(base: Mapping[str, float | None], new: Mapping[str, float | None]) -> list[Figure]:
    """The figures of both sides, which have the same names."""
    return [Figure(name, value, new[name], relative(value, new[name])) for name, value in base.items()]


def differences(base: Mapping[str, object], new: Mapping[str, object]) -> list[Difference]:
    """The facts in which the sides differ, in their order; None on a side that lacks one."""
    return [
        Difference(name, base.get(name), new.get(name))
        for name in dict.fromkeys([*base, *new])
        if base.get(name) != new.get(name)
    ]


def left_out(by_reason: Mapping[str, int], unpaired: int) -> dict[str, int]:
    """Units that are not compared, by reason, with those that not every run has."""
    return dict(by_reason) | ({"not in every run": unpaired} if unpaired else {})


def on_both_sides(base: Sequence[Run], new: Sequence[Run]) -> str | None:
    """Title of a run that is in BASE and in NEW. Raises PerfError for one that is in a side twice."""
    for side in (base, new):
        for place, run in enumerate(side):
            twin = next((other for other in side[:place] if other.path.samefile(run.path)), None)
            if twin is not None:
                raise PerfError(f"'{twin.path}' is named twice, and a run counts once; leave one of them out")
    return next((run.title for run in new if any(run.path.samefile(one.path) for one in base)), None)


def noise_source(judge: Judge, options: CompareOptions, assumed: str = "assumed") -> str:
    """The source of the noise between runs, in words."""
    if judge.is_noise_seen:
        return "seen between the runs of each side"
    return assumed if options.noise is None else "--noise"


def trend(times: Sequence[Sequence[float]], cut: int, name: str, axis: str) -> Section:
    """The runs, the first `cut` of them BASE, over each other.

    Args:
        times: of each run's units, milliseconds, equally many.
        cut: where NEW begins.
        name: of what is drawn.
        axis: what is counted along it.
    """
    lines = [
        Line(
            f"{'BASE' if place < cut else 'NEW'} {place + 1 - (0 if place < cut else cut)}",
            list(range(1, len(row) + 1)),
            list(row),
            "blue" if place < cut else "orange",
        )
        for place, row in enumerate(times)
    ]
    title, span = "The runs over each other", (1.0, float(len(times[0])))
    panel = Panel(name, "ms", lines, begins_at_zero=True)
    return Section("trend", "Trend", title, [Series("trend", title, [panel], axis, span)])
