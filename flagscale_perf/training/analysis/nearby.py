"""By how much runs of one configuration differ: those that lie near a run, else what is assumed."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import NormalDist, mean

from flagscale_perf.analysis.compare import student
from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.averages import median
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.session import file_names
from flagscale_perf.training.analysis.basis import noise_of
from flagscale_perf.training.analysis.settings import Settings, differing, is_seed, settings_of
from flagscale_perf.training.analysis.steps import read_steps
from flagscale_perf.training.facts import RunFacts

WARMUP = 5  # iterations that say nothing of a usual step
MIN_FREEDOM = 2  # three runs of one configuration, two of two
MAX_RUNS, MAX_OTHERS, MAX_FILES, MAX_BYTES = 8, 4, 64, 16 << 20  # of a file: longer ones take too long
_RUNS = file_names("*")["records"]
_NO_SETTINGS = {"train_iters", "exit_interval", "exit_duration_in_mins"}  # how long a run is
_PROBABILITY = 0.975


def usual_ns(session: Session) -> float:
    """The median of its settled steps. Raises PerfError where these are too few."""
    steps = read_steps(session, WARMUP, None).steps.values()
    return median([float(step.iteration_ns) for step in steps])


def drift_of(session: Session, facts: RunFacts) -> tuple[float, str]:
    """Standard deviation between the usual steps of two runs of one configuration, as a share, and where that
    is from: runs nearby of the session's own one, or where these are too few, of all that were run again.
    """
    own, *others = _configurations(session, facts)
    own_ns = _steps_ns(own)
    if (share := spread_of([own_ns])) is not None:
        return share, f"{len(own_ns)} runs of this configuration"
    others_ns = map(_steps_ns, [runs for runs in others if len(runs) > 1][:MAX_OTHERS])
    again = [each_ns for each_ns in (own_ns, *others_ns) if len(each_ns) > 1]
    if (share := spread_of(again)) is not None:
        return share, f"{sum(map(len, again))} runs of {len(again)} configurations nearby"
    return noise_of(facts.is_on_cpu)


def spread_of(configurations: Sequence[Sequence[float]]) -> float | None:
    """The same of the usual steps of several runs of each of these. Of few runs it is so much larger as it
    may be; None where no configuration was run three times, nor two twice.
    """
    logs = [[*map(math.log, own)] for own in configurations]
    freedom = sum(len(own) - 1 for own in logs if own)
    if freedom < MIN_FREEDOM:
        return None
    wider = student.quantile(_PROBABILITY, freedom) / NormalDist().inv_cdf(_PROBABILITY)
    squares = sum((each - mean(own)) ** 2 for own in logs for each in own)
    return wider * math.sqrt(squares / freedom)


def _configurations(session: Session, facts: RunFacts) -> list[list[Session]]:
    """This run and those nearby on devices of its kind, by what they are configured as; its own first."""
    own = settings_of(session.header, facts)
    found: list[tuple[Settings, list[Session]]] = [(own, [session])]
    for path in islice(_near(session.path.parent), MAX_FILES):
        with contextlib.suppress(PerfError, OSError):
            if path in session.paths:
                continue
            other = open_session(path)
            other.check(session.instrument, "")
            settings = settings_of(other.header, RunFacts.of(other.header.facts))
            if settings.get("device") == own.get("device"):
                alike = next((runs for known, runs in found if _are_alike(known, settings)), None)
                if alike is None:
                    found.append((settings, alike := []))
                alike.append(other)
    return [runs for _, runs in found]


def _are_alike(one: Settings, other: Settings) -> bool:
    return all(is_seed(name) or name in _NO_SETTINGS for name in differing([one, other]))


def _steps_ns(runs: Sequence[Session]) -> list[float]:
    """The usual steps of several runs; none of a single one, which tells nothing."""
    found = list[float]()
    for run in runs[:MAX_RUNS] if len(runs) > 1 else ():
        with contextlib.suppress(PerfError, OSError):
            if run.size_bytes <= MAX_BYTES:
                found.append(usual_ns(run))
    return found


def _near(directory: Path) -> Iterator[Path]:
    """Run files in the directory, in those beside it, and in those of its name one further level up."""
    yield from sorted(directory.glob(_RUNS))
    with contextlib.suppress(OSError):
        places = {
            *directory.parent.glob(f"*/{_RUNS}"),
            *directory.parent.parent.glob(f"*/{directory.name}/{_RUNS}"),
        }
        yield from sorted(path for path in places if path.parent != directory)
