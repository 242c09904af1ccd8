"""Compares experiments: points with the same case on all sides, round by round, each point with equal weight.

A round is the n-th repetition of every point. A time is taken as a part of BASE's median of its point, a rate
(tokens/s, GB/s) the other way round, so that more is always slower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flagscale_perf.analysis.compare.compare import CompareOptions, Comparison, Terms
from flagscale_perf.analysis.compare.driver import Compared, Units
from flagscale_perf.analysis.session import Session
from flagscale_perf.bench.analysis.source import Bench, case_text, read_bench, spread
from flagscale_perf.bench.records import BenchPoint
from flagscale_perf.spine.averages import mean
from flagscale_perf.spine.errors import PerfError

MIN_ROUNDS, MAX_ROUNDS = 2, 1024
PERCENT = 100.0
REPETITION = "repetition"  # in the case of points of one repetition each
TERMS = Terms(
    "round",
    MAX_ROUNDS,
    labels={"mean": ("mean, {unit}", 2), "p95": ("p95, {unit}", 2)},
    remarks=[
        "a round is the n-th repetition of every point that both sides have, each point in percent of BASE's"
        " median of it, rates turned round: 110 is slower than 100 by a tenth"
    ],
    unit="% of BASE",
)
_NO_CONFIGURATION = ("load", "experiments")
Key = tuple[str, str, str]  # experiment, figure, case


@dataclass(frozen=True)
class Run:
    """What was read of a session, and its points by what they have in common with those of another."""

    session: Session
    bench: Bench
    points: Mapping[Key, BenchPoint]


def compare(base: Sequence[Session], new: Sequence[Session], options: CompareOptions) -> Comparison:
    """Compares the runs of one side with those of the other. Raises PerfError if they cannot be compared."""
    runs, cut = [_read(session) for session in (*base, *new)], len(base)
    keys = _common(runs)
    units = {key: mean([spread(run.points[key].samples).median for run in runs[:cut]]) for key in keys}
    made = [_units(run, units) for run in runs]
    return Compared(made[:cut], made[cut:], TERMS, options).comparison()


def _units(run: Run, units: Mapping[Key, float]) -> Units:
    """A run's rounds; `units`: BASE's median of each point."""
    count = min(len(run.points[key].samples) for key in units)
    parts = {part: _rounds(run, keys, units, count) for part, keys in _parts([*units]).items()}
    missing = len(run.points) - len(units)
    return Units(
        run.session,
        times=[sum(of_parts) for of_parts in zip(*parts.values(), strict=True)],
        parts=parts,
        left_out={"points that not every run has": missing} if missing else {},
        facts=_configuration(run.bench),
        skipped_lines=run.bench.reading.skipped,
    )


def _read(session: Session) -> Run:
    bench = read_bench(session)
    found: dict[Key, list[BenchPoint]] = {}
    for part in bench.parts.values():
        for point in part.points:
            case = {name: value for name, value in sorted(point.case.items()) if name != REPETITION}
            found.setdefault((part.name, point.figure, case_text(case)), []).append(point)
    points = {key: _whole(each) for key, each in found.items()}
    kept = {
        key: point
        for key, point in points.items()
        if len(point.samples) >= MIN_ROUNDS and min(point.samples) > 0
    }
    return Run(session, bench, kept)


def _whole(points: Sequence[BenchPoint]) -> BenchPoint:
    """Joins points of one repetition each into one point: the median of its requests stands for each."""
    if REPETITION not in points[-1].case:
        return points[-1]
    ordered = sorted(points, key=lambda point: int(point.case[REPETITION]))
    return replace(ordered[0], samples=[spread(point.samples).median for point in ordered])


def _common(runs: Sequence[Run]) -> list[Key]:
    """The points that all runs have. Raises PerfError if there are none."""
    keys = [key for key in runs[0].points if all(key in run.points for run in runs)]
    if not keys:
        counts = "; ".join(f"{str(run.session.path)!r} has {len(run.points)} points" for run in runs)
        raise PerfError(
            f"the runs have no point of {MIN_ROUNDS} repetitions in common: {counts}; measure both sides"
            " with the same options"
        )
    return keys


def _parts(keys: Sequence[Key]) -> dict[str, list[Key]]:
    """Points by experiment, figure and operation: `bandwidth, all_reduce`."""
    found: dict[str, list[Key]] = {}
    for key in keys:
        experiment, figure, case = key
        first = case.partition(",")[0]
        what = figure if " " in first else first  # a case that begins with an operation has one word there
        found.setdefault(f"{experiment}, {what}", []).append(key)
    return found


def _rounds(run: Run, keys: Sequence[Key], units: Mapping[Key, float], count: int) -> list[float]:
    """What these points add to each round."""
    row = [0.0] * count
    for key in keys:
        point, unit = run.points[key], units[key]
        for number, sample in enumerate(point.samples[:count]):
            ratio = unit / sample if point.unit.endswith("/s") else sample / unit
            row[number] += PERCENT / len(units) * ratio
    return row


def _configuration(bench: Bench) -> dict[str, object]:
    facts: dict[str, object] = {
        name: fact for name, fact in bench.header.facts.items() if name not in _NO_CONFIGURATION
    }
    for part in bench.parts.values():
        facts |= {
            f"{part.name}: {name}": value
            for name, value in part.settings.items()
            if name not in ("topology", "free_bytes", "said")
        }
    return facts
