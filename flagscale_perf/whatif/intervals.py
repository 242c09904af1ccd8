"""How far off a prediction may be: four half widths, each for itself, and what they are together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

from flagscale_perf.analysis.compare import student
from flagscale_perf.analysis.replays import Doubt
from flagscale_perf.spine.averages import median, scatter
from flagscale_perf.spine.bootstrap import REPLICATES, block_length, draws

CONFIDENCE = 0.95
FEW_CHECKS = 19  # of fewer outcomes none is beyond 95 of 100
# Until a kind was checked 19 times: of what the step changes by, and of the step. From pairs of real runs
# whose layers last as long as they were told to: plants and their removal; micro-batches, splits, stages.
EXPECTED = {"A": (0.2, 0.0), "B": (0.05, 0.01), "C": (0.2, 0.1)}
_TWO_SIDED = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_SEED = 2026


def parts_of(
    kind: str,
    measured_ns: Sequence[float],
    predicted_ns: Sequence[float],
    residual_ns: Sequence[float],
    doubt: Doubt,
) -> dict[str, float]:
    """Half widths in nanoseconds by what they are from. Of each step what was recorded, what is predicted,
    and by how much the replay misses it without a change.
    """
    usual_ns = median(predicted_ns)
    base = {
        "replay": _TWO_SIDED * scatter(residual_ns, median(residual_ns)),
        "sampling": sampling(predicted_ns),
        "drift": _TWO_SIDED * math.sqrt(2) * doubt.drift * usual_ns,
    }
    change_ns = abs(usual_ns - median(measured_ns))
    return {**base, "record": record(kind, together(base), (change_ns, usual_ns), doubt)}


def together(parts: Mapping[str, float]) -> float:
    """The half width of the whole interval."""
    return math.hypot(*parts.values())


def sampling(values: Sequence[float]) -> float:
    """How far the median of as many other steps would be: by blocks of neighbours, and of few steps as much
    wider as a deviation known from so few.
    """
    count = len(values)
    medians = sorted(median(draw(values)) for draw in draws(count, block_length(values), _SEED))
    outside = round((1 - CONFIDENCE) / 2 * REPLICATES)
    wider = student.quantile((1 + CONFIDENCE) / 2, count - 1) / _TWO_SIDED * math.sqrt(count / (count - 1))
    middle = median(values)
    return wider * max(medians[-1 - outside] - middle, middle - medians[outside])


def record(kind: str, base_ns: float, sizes_ns: tuple[float, float], doubt: Doubt) -> float:
    """What is added as other predictions of this kind were further off than their intervals without it
    (split conformal): so much that the interval would have held 95 of 100 of them. Of fewer than 19 outcomes
    the furthest, and at least what is expected of the kind.
    """
    scores = sorted(score for score, _ in doubt.scores.get(kind, ()))
    count = len(scores)
    place = min(count, math.ceil((count + 1) * CONFIDENCE)) - 1
    wider = max(1.0, scores[place]) if scores else 1.0
    seen_ns = base_ns * math.sqrt(wider**2 - 1)
    if count >= FEW_CHECKS:
        return seen_ns
    of_change, of_step = EXPECTED[kind]
    return max(seen_ns, of_change * sizes_ns[0] + of_step * sizes_ns[1])
