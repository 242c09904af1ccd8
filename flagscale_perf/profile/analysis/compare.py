"""Compares profiles, each kind of step by itself: step times, kinds of work and places in the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flagscale_perf.analysis.blocks import Section, bars_to_scale
from flagscale_perf.analysis.compare.compare import STATISTICS, CompareOptions, Comparison, Terms
from flagscale_perf.analysis.compare.driver import MAX_UNITS, WARMUP_SHARE, Compared, Units, Values
from flagscale_perf.analysis.compare.judge import SLOWER, UNDECIDED, Row
from flagscale_perf.analysis.session import Session
from flagscale_perf.profile.analysis.drawn import colour_of
from flagscale_perf.profile.analysis.layers import OUTSIDE, Place
from flagscale_perf.profile.analysis.observer import Observer, observers_of
from flagscale_perf.profile.analysis.source import Frame, Profile, read_profile
from flagscale_perf.profile.analysis.sums import PhaseSums, sums_of
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.errors import PerfError

MIN_STEPS = 2  # a single step shows no spread
ENOUGH = 5  # of a sort, so that the other sort is not looked at
CLEAN, PROFILED = "clean", "profiled"
KIND = "kind "
LABELS = {  # and decimals
    "mean": ("mean, {unit}", 3),
    "p95": ("p95, {unit}", 3),
    "observer": ("profiled step by clean step", 3),
}
REMARKS = (
    "kinds of work and places come from profiled steps, including the cost of profiling: their time in single"
    " steps is not recorded, so they are assumed to spread as the steps do",
    "each kind of step is judged by itself, relative to BASE's step of this kind; the intervals of its parts"
    " hold jointly with 95 %",
)
_TOKENS = "tokens of a {} step"
_PLACE = (
    *("host", "model", "device", "mode", "world_size", "tensor_size", "pipeline_size", "data_size"),
    *("expert_size", "modules"),
)
_NO_CONFIGURATION = ("job", "profiled")


@dataclass(frozen=True)
class Run:
    """One profile: its session, and sums and observers by kind of step."""

    session: Session
    profile: Profile
    sums: Mapping[str, PhaseSums]
    observers: Mapping[str, Observer]

    def steps(self, phase: str, basis: str) -> list[Frame]:
        """Steps of this kind and basis, one array for each rank that has any, in their order."""
        found = []
        for rank in self.profile.ranks:
            steps = rank.clean if basis == CLEAN else rank.profiled
            own = steps.where(steps["phase"] == phase)
            if len(own):
                found.append(own.where(np.argsort(own["start_ns"], kind="stable")))
        return found

    def times(self, phase: str, basis: str) -> list[float]:
        """Milliseconds of the n-th step, averaged over the ranks."""
        rows = [steps["total_ns"] / NS_PER_MS for steps in self.steps(phase, basis)]
        count = min(map(len, rows), default=0)
        made: list[float] = np.mean([row[:count] for row in rows], axis=0).tolist() if count else []
        return made

    def first(self, phase: str, basis: str, warmup: int) -> int:
        """How many of the first steps are still warm-up, judged by their iterations."""
        early = [
            int(np.count_nonzero(steps["iteration"][steps.known("iteration")] <= warmup))
            for steps in self.steps(phase, basis)
        ]
        count = len(self.times(phase, basis))
        return max(0, min(max(early, default=0), count // WARMUP_SHARE, count - ENOUGH))


def compare(base: Sequence[Session], new: Sequence[Session], options: CompareOptions) -> Comparison:
    """Compares the runs of one side with those of the other. Raises PerfError if they cannot be compared."""
    runs, cut = [_read(session) for session in (*base, *new)], len(base)
    judged = {phase: _compared(runs, cut, (phase, basis), options) for phase, basis in _bases(runs).items()}
    main = max(judged, key=lambda phase: _gravity(judged[phase]))
    lead = judged[main]
    result = lead.comparison(
        charts=[lead.trend(), *_bars(lead.rows)],
        others=[row for phase, one in judged.items() if phase != main for row in _other(phase, one)],
    )
    tokens = _TOKENS.format(main)
    if not any(one.name == tokens for one in result.differences):
        return result
    remarks = [*REMARKS, "the sides' steps differ in tokens: times are per step, not per token"]
    return replace(result, terms=replace(result.terms, remarks=remarks))


def _gravity(judged: Compared) -> tuple[int, bool, float]:
    """A key that sorts kinds of steps by their verdict, the worst highest."""
    outcome = None if judged.gate is None else judged.gate.outcome
    is_slower = judged.whole.verdict == SLOWER
    share = judged.whole.share or 0.0
    return {SLOWER: 2, UNDECIDED: 1}.get(outcome or "", 0), is_slower, share if is_slower else 0.0


def _read(session: Session) -> Run:
    profile = read_profile(session)
    return Run(session, profile, sums_of(profile), observers_of(profile))


def _bases(runs: Sequence[Run]) -> dict[str, str]:
    """The steps of each kind to compare: clean ones if every run has enough of them. Raises PerfError if
    there are none.
    """
    common = [phase for phase in runs[0].sums if all(phase in run.sums for run in runs)]
    if not common:
        kinds = "; ".join(f"{str(run.session.path)!r} has {', '.join(run.sums) or 'none'}" for run in runs)
        raise PerfError(f"the runs have no kind of profiled step in common: {kinds}")
    made = {phase: basis for phase in common if (basis := _basis(runs, phase)) is not None}
    if not made:
        raise PerfError(_too_few(runs, common[0]))
    return made


def _basis(runs: Sequence[Run], phase: str) -> str | None:
    for enough in (ENOUGH, MIN_STEPS):
        for basis in (CLEAN, PROFILED):
            if all(len(run.times(phase, basis)) >= enough for run in runs):
                return basis
    return None


def _too_few(runs: Sequence[Run], phase: str) -> str:
    run = min(runs, key=lambda one: max(len(one.times(phase, basis)) for basis in (CLEAN, PROFILED)))
    clean, profiled = (len(run.times(phase, basis)) for basis in (CLEAN, PROFILED))
    more = MIN_STEPS - max(clean, profiled)
    return (
        f"{str(run.session.path)!r} has {clean} clean and {profiled} profiled {phase} steps, too few to tell"
        f" a difference from noise; it needs {more} more of one sort, and {ENOUGH} or more for a narrow"
        " interval: --perf-profile-steps 20-29"
    )


def _compared(runs: Sequence[Run], cut: int, steps: tuple[str, str], options: CompareOptions) -> Compared:
    phase, basis = steps
    firsts = [run.first(phase, basis, options.warmup) for run in runs]
    count = min(len(run.times(phase, basis)) - first for run, first in zip(runs, firsts, strict=True))
    made = [
        _units(run, steps, first, (count, STATISTICS[options.judge]))
        for run, first in zip(runs, firsts, strict=True)
    ]
    terms = Terms(f"{basis} {phase} step", MAX_UNITS, LABELS, REMARKS)
    return Compared(made[:cut], made[cut:], terms, options)


def _units(
    run: Run, steps: tuple[str, str], first: int, typical: tuple[int, Callable[[Sequence[float]], float]]
) -> Units:
    """A run's steps behind the first ones; `typical`: how many every run has, and what is judged of them."""
    phase, basis = steps
    times, (count, statistic) = run.times(phase, basis)[first:], typical
    other = PROFILED if basis == CLEAN else CLEAN
    left_out = {f"{other} steps": len(run.times(phase, other)), "steps at the start": first}
    ratio = run.observers[phase].ratio
    return Units(
        run.session,
        times,
        parts=_parts(run.sums[phase], times, statistic(times[:count])),
        left_out={name: number for name, number in left_out.items() if number},
        facts=_configuration(run, phase),
        amounts={"observer": [] if ratio is None else [ratio]},
        skipped_lines=run.session.reading.skipped,
    )


def _parts(sums: PhaseSums, times: Sequence[float], usual: float) -> Mapping[str, Values]:
    """Kinds of work and places: only means are recorded, so they are spread as the steps are."""
    return {
        name: [amount * time / (usual or 1.0) for time in times] for name, amount in _amounts(sums).items()
    }


def _amounts(sums: PhaseSums) -> dict[str, float]:
    kinds, places = sums.by(lambda cell: cell.kind), sums.by_place(lambda cell: cell.place)
    made = {f"{KIND}{kind}": kinds[kind].worked_ns for kind in sums.kinds}
    made |= {_title(place): places[place].worked_ns for place in sums.places if places[place].worked_ns}
    return {name: ns / NS_PER_MS for name, ns in made.items()}


def _title(place: Place) -> str:
    if place.number is not None:
        return place.name
    return "outside of modules" if place.name == OUTSIDE else f"module {place.name}"


def _other(phase: str, one: Compared) -> list[Row]:
    """Rows for a kind of step other than the main one; shares are of its own step time."""
    return [
        replace(one.whole, name=one.terms.a_noun),
        *(replace(row, name=f"{phase}, {row.name}") for row in one.rows),
    ]


def _configuration(run: Run, phase: str) -> dict[str, object]:
    profile, header = run.profile, run.session.header
    facts = {name: fact for name, fact in header.facts.items() if name not in _NO_CONFIGURATION}
    place = profile.ranks[0].place
    tokens = {
        each["tokens"] for rank in profile.ranks for each in rank.steps.records() if each["phase"] == phase
    }
    return (
        facts
        | {name: place.get(name) for name in _PLACE}
        | {
            "ranks": len(profile.ranks),
            _TOKENS.format(phase): next(iter(tokens)) if len(tokens) == 1 else None,
        }
    )


def _bars(rows: Sequence[Row]) -> list[Section]:
    kinds = {row.name.removeprefix(KIND): row for row in rows if row.name.startswith(KIND)}
    parts = {
        f"{side.upper()}, a profiled step": [
            (kind, time, colour_of(kind)) for kind, row in kinds.items() if (time := getattr(row, side))
        ]
        for side in ("base", "new")
    }
    return [
        Section("kinds", "Kinds of work", "Kinds of work side by side", bars_to_scale("ms", parts))
    ] * bool(kinds)
