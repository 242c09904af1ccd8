"""By how much runs of one configuration differ: those that lie near a run, else what is assumed."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import NormalDist, stdev

from flagscale_perf.analysis.compare import student
from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.averages import median
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.session import file_names
from flagscale_perf.training.analysis.basis import noise_of
from flagscale_perf.training.analysis.settings import differing, is_seed, settings_of
from flagscale_perf.training.analysis.steps import read_steps
from flagscale_perf.training.facts import RunFacts

WARMUP = 5  # iterations that say nothing of a usual step
MIN_RUNS, MAX_RUNS, MAX_FILES, MAX_BYTES = 3, 8, 64, 16 << 20  # of a file: longer ones take too long
_RUNS = file_names("*")["records"]
_NO_SETTINGS = {"train_iters", "exit_interval", "exit_duration_in_mins"}  # how long a run is
_PROBABILITY = 0.975


def usual_ns(session: Session) -> float:
    """The median of its settled steps. Raises PerfError where these are too few."""
    steps = read_steps(session, WARMUP, None).steps.values()
    return median([float(step.iteration_ns) for step in steps])


def drift_of(session: Session, facts: RunFacts) -> tuple[float, str]:
    """Standard deviation between the usual steps of two runs of the session's configuration, as a share, and
    where that is from. Of few runs it is so much larger as it may be.
    """
    alike = [math.log(each) for each in islice(_alike(session, facts), MAX_RUNS)]
    if len(alike) >= MIN_RUNS:
        wider = student.quantile(_PROBABILITY, len(alike) - 1) / NormalDist().inv_cdf(_PROBABILITY)
        return wider * stdev(alike), f"{len(alike)} runs of this configuration"
    return noise_of(facts.is_on_cpu)


def _alike(session: Session, facts: RunFacts) -> Iterator[float]:
    """The usual steps of this run and of those nearby that are configured as it is."""
    own = settings_of(session.header, facts)
    if session.size_bytes > MAX_BYTES:
        return
    with contextlib.suppress(PerfError):
        yield usual_ns(session)
    for path in islice(_near(session.path.parent), MAX_FILES):
        with contextlib.suppress(PerfError, OSError):
            if path.stat().st_size > MAX_BYTES:
                continue
            if path in session.paths:
                continue
            other = open_session(path)
            other.check(session.instrument, "")
            differ = differing([own, settings_of(other.header, RunFacts.of(other.header.facts))])
            if all(is_seed(name) or name in _NO_SETTINGS for name in differ):
                yield usual_ns(other)


def _near(directory: Path) -> Iterator[Path]:
    """Run files in the directory, in those beside it, and in those of its name one further level up."""
    yield from sorted(directory.glob(_RUNS))
    with contextlib.suppress(OSError):
        places = {
            *directory.parent.glob(f"*/{_RUNS}"),
            *directory.parent.parent.glob(f"*/{directory.name}/{_RUNS}"),
        }
        yield from sorted(path for path in places if path.parent != directory)
