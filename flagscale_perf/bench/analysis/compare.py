"""Compares experiments: points with the same case on all sides, round by round, each point with equal weight.

A round is the n-th repetition of every point. A time is taken as a part of BASE's median of its point, a rate
(tokens/s, GB/s) the other way round, so that more is always slower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.compare import blocks as comparison
from flagscale_perf.analysis.compare import bootstrap, sides
from flagscale_perf.analysis.compare.compare import NOISE, CompareOptions, Comparison
from flagscale_perf.analysis.compare.paired import Paired
from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.run_file import check_instrument
from flagscale_perf.bench.analysis.source import Bench, case_text, read_bench, spread
from flagscale_perf.bench.recording import INSTRUMENT_NAME
from flagscale_perf.bench.records import BenchPoint
from flagscale_perf.spine.errors import PerfError

MIN_ROUNDS, MAX_ROUNDS = 2, 1024
NOUN = "round"
PERCENT = 100.0
REPETITION = "repetition"  # in the case of points of one repetition each
LABELS = {"mean": ("mean, {unit}", 2), "p95": ("p95, {unit}", 2)}  # and decimals
REMARKS = (
    "a round is the n-th repetition of every point that both sides have, each point in percent of BASE's"
    " median of it, rates turned round: 110 is slower than 100 by a tenth",
)
_NO_CONFIGURATION = ("load", "experiments")
Key = tuple[str, str, str]  # experiment, figure, case


@dataclass(frozen=True)
class Run:
    """One run file.

    Attributes:
        path: of it.
        bench: what was read.
        points: by what they have in common with those of another run.
    """

    path: Path
    bench: Bench
    points: Mapping[Key, BenchPoint]

    @property
    def title(self) -> str:
        """Name of the run in the comparison."""
        return self.path.stem

    @property
    def skipped_lines(self) -> int:
        """Lines of the file that are no records."""
        return self.bench.reading.skipped


def report_of(result: Comparison) -> Report:
    """The report as blocks, the same for every output format."""
    return comparison.report_of(result, LABELS, REMARKS, (NOUN, f"a {NOUN}"))


def compare(base: Sequence[Path], new: Sequence[Path], options: CompareOptions) -> Comparison:
    """Compares the runs of one side with those of the other. Raises PerfError if they cannot be compared."""
    runs, cut = [_read(path) for path in (*base, *new)], len(base)
    same = sides.on_both_sides(runs[:cut], runs[cut:])
    keys = _common(runs)
    count = min(len(run.points[key].samples) for run in runs for key in keys)
    weight = PERCENT / len(keys)
    parts = {part: _rounds(runs, cut, own, count, weight) for part, own in _parts(keys).items()}
    times = [
        [sum(of_parts) for of_parts in zip(*(rows[place] for rows in parts.values()), strict=True)]
        for place in range(len(runs))
    ]
    paired = Paired(
        runs,
        cut,
        NOUN,
        times,
        parts=parts,
        left_out=[_left_out(run, keys) for run in runs],
        most=MAX_ROUNDS,
        noise=NOISE,
        same_run=same,
        unit="% of BASE",
    )
    return paired.judged(options).comparison(
        (sides.typical([*chain(*times[:cut])]), sides.typical([*chain(*times[cut:])])),
        sides.differences(_configuration(runs[0].bench), _configuration(runs[cut].bench)),
    )


def _read(path: Path) -> Run:
    """Raises PerfError for a file of another instrument."""
    bench = read_bench(open_session(path))
    check_instrument(path, bench.header, INSTRUMENT_NAME, "compare experiments with experiments")
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
    return Run(path, bench, kept)


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
        counts = "; ".join(f"{str(run.path)!r} has {len(run.points)} points" for run in runs)
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


def _rounds(
    runs: Sequence[Run], cut: int, keys: Sequence[Key], count: int, weight: float
) -> list[list[float]]:
    """What these points add to each round of each run: each point as a part of BASE's, times the weight."""
    rows = [[0.0] * count for _ in runs]
    for key in keys:
        unit = bootstrap.mean([spread(run.points[key].samples).median for run in runs[:cut]])
        for row, run in zip(rows, runs, strict=True):
            point = run.points[key]
            for number, sample in enumerate(point.samples[:count]):
                ratio = unit / sample if point.unit.endswith("/s") else sample / unit
                row[number] += weight * ratio
    return rows


def _left_out(run: Run, keys: Sequence[Key]) -> dict[str, int]:
    missing = len(run.points) - len(keys)
    return {"points that not every run has": missing} if missing else {}


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
