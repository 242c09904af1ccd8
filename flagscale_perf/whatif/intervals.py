"""How far off a prediction may be: four half widths, each for itself, and what they are together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist

from flagscale_perf.analysis.compare import student
from flagscale_perf.analysis.predictions import Doubt
from flagscale_perf.spine.averages import median, scatter
from flagscale_perf.spine.bootstrap import REPLICATES, block_length, draws

CONFIDENCE = 0.95
FEW_CHECKS = 19  # of fewer outcomes none is beyond 95 of 100
# Before a kind was checked: of what the step changes by, and of the step. From pairs of real runs whose
# layers last as long as they were told to: plants and their removal; micro-batches, splits, stages.
EXPECTED = {"A": (0.2, 0.0), "B": (0.05, 0.01), "C": (0.2, 0.1)}
_TWO_SIDED = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_SEED = 2026


def parts_of(
    kind: str,
    measured_ns: Sequence[float],
    predicted_ns: Sequence[float],
    residual_ns: Sequence[float],
    doubt: Doubt,
) -> tuple[dict[str, float], float]:
    """As `recorded`. Of each step what was recorded, what is predicted, and by how much the replay misses it
    without a change.
    """
    usual_ns = median(predicted_ns)
    base = {
        "replay": _TWO_SIDED * scatter(residual_ns, median(residual_ns)),
        "sampling": sampling(predicted_ns),
        "drift": drift(doubt, usual_ns),
    }
    return recorded(kind, base, expected(kind, median(measured_ns), usual_ns), doubt)


def recorded(
    kind: str, base: Mapping[str, float], expected_ns: float, doubt: Doubt
) -> tuple[dict[str, float], float]:
    """Half widths in nanoseconds by what they are from, and the whole half width had no prediction of this
    kind been checked yet. Those that were make all of it as wide as they needed: where that is less than the
    other parts are together, these are so much narrower.
    """
    base_ns = together(base)
    plain_ns = math.hypot(base_ns, expected_ns)
    half_ns = _times(kind, doubt) * plain_ns
    share = min(1.0, half_ns / base_ns) if base_ns else 1.0
    parts = {name: share * ns for name, ns in base.items()}
    return {**parts, "record": math.sqrt(max(0.0, half_ns**2 - base_ns**2))}, plain_ns


def of_gain(kind: str, base_ns: float, gain_ns: float, doubt: Doubt) -> float:
    """The half width of what the steps of one run gain, each compared with itself; how predictions of other
    runs turned out can make it wider alone.
    """
    return max(1.0, _times(kind, doubt)) * math.hypot(base_ns, EXPECTED[kind][0] * abs(gain_ns))


def drift(doubt: Doubt, usual_ns: float) -> float:
    """What two runs of one configuration differ by."""
    return _TWO_SIDED * math.sqrt(2) * doubt.drift * usual_ns


def together(parts: Mapping[str, float]) -> float:
    """The half width of the whole interval."""
    return math.hypot(*parts.values())


def sampling(values: Sequence[float], usual: Callable[[Sequence[float]], float] = median) -> float:
    """How far the median, or mean, of as many other steps would be: by blocks of neighbours, and of few steps
    as much wider as a deviation known from so few.
    """
    count = len(values)
    found = sorted(usual(draw(values)) for draw in draws(count, block_length(values), _SEED))
    outside = round((1 - CONFIDENCE) / 2 * REPLICATES)
    wider = student.quantile((1 + CONFIDENCE) / 2, count - 1) / _TWO_SIDED * math.sqrt(count / (count - 1))
    middle = usual(values)
    return wider * max(found[-1 - outside] - middle, middle - found[outside])


def expected(kind: str, measured_ns: float, predicted_ns: float) -> float:
    """How far off a prediction of this kind may be, whatever is known of its steps and of runs."""
    of_change, of_step = EXPECTED[kind]
    return of_change * abs(predicted_ns - measured_ns) + of_step * predicted_ns


def _times(kind: str, doubt: Doubt) -> float:
    """How many times as wide an interval had to be to hold 95 of 100 predictions of this kind (split
    conformal). Of fewer than 19 outcomes as the furthest needed, and no less than once.
    """
    scores = sorted(score for score, _ in doubt.scores.get(kind, ()))
    count = len(scores)
    times = scores[min(count, math.ceil((count + 1) * CONFIDENCE)) - 1] if scores else 1.0
    return times if count >= FEW_CHECKS else max(1.0, times)
