"""What a plant costs: by the host's own steps with it and without it, in turns, in one run."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.slow_training.plants import ALWAYS, WAITS, WINDOW, Planted, part_of

OF_WORK = {"forward": 1 / 3, "backward": 2 / 3}  # of the time that more work takes: a backward pass is two
NAMED_SHARE = 0.8  # a cause that explains less of a cost is not the cause
NO_PEERS = "a rank without data-parallel peers: only its stage can be told"
NO_RANK = "late inside a wait for others: the operation can be told, the rank cannot"


class Cost(NamedTuple):
    """Milliseconds of a step, and two standard errors of that."""

    ms: float
    within_ms: float

    def times(self, factor: float) -> Cost:
        """A part of it."""
        return Cost(self.ms * factor, self.within_ms * factor)


def truth_of(plan: Planted, step_ms: Sequence[tuple[int, float]], work_ms: float) -> dict[str, Any]:
    """What is known of a run; README.md says what each name means.

    Args:
        step_ms: each step's number and milliseconds, as the host printed them.
        work_ms: how much longer a rank computes in a step because it has more to do, as planted.
    """
    first = [ms for step, ms in step_ms if 1 < step <= ALWAYS]
    is_lone = plan.stages == plan.ranks
    found: dict[str, Any] = {
        "kind": plan.kind,
        "healthy": plan.kind == "healthy",
        "decidable": not is_lone,
        "note": NO_PEERS if is_lone else "",
        "step_ms": round(statistics.fmean(first), 2),
        "standing": _standing(plan),
        "switched_ms": [ms for step, ms in step_ms if step > ALWAYS],
    }
    if found["healthy"]:
        return found | _summed(Cost(0.0, 0.0), None, [])
    windows = windows_of(plan, step_ms)
    if plan.groups > 1:
        together, *alone = costs_of_two(windows)
        return found | _summed(together, 0.0, _pair(plan, together, alone))
    delay = plan.delays[0] if plan.delays else None
    parts = [part_of(delay, step, plan.seed) if delay else 1.0 for step in range(1, ALWAYS + 1)]
    cost = cost_of(windows).times(statistics.fmean(parts))
    planted = _planted(plan, work_ms)
    whole_ms = sum(map(sum, planted.values()))
    plants = [
        _plant(plan, phase, cost.times((work + slow) / whole_ms), work / (work + slow))
        for phase, (work, slow) in planted.items()
    ]
    if delay and delay.phase in WAITS:
        found["note"] = NO_RANK
    return found | _summed(cost, sum(work for work, _ in planted.values()) / whole_ms, plants)


def _summed(cost: Cost, work_share: float | None, plants: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "cost_ms": round(cost.ms, 2),
        "within_ms": round(cost.within_ms, 2),
        "work_share": None if work_share is None else round(work_share, 3),
        "plants": plants,
    }


def windows_of(plan: Planted, step_ms: Sequence[tuple[int, float]]) -> list[float]:
    """The mean step of each window of the switched half, in milliseconds. What is late after the last wait of
    a step is paid in the next one: of such plants the first step of a window is left out.
    """
    first = int(any(delay.part == "optimizer_inner_step" for delay in plan.delays))
    windows: dict[int, list[float]] = defaultdict(list)
    for step, ms in step_ms:
        window, place = divmod(step - ALWAYS - 1, WINDOW)
        if window >= 0 and place >= first:
            windows[window].append(ms)
    return [statistics.fmean(found) for _, found in sorted(windows.items())]


def cost_of(windows: Sequence[float]) -> Cost:
    """Of plants that are on in the first window, off in the next, and so on. Each is compared with both of
    its neighbours, so that what changes slowly on a busy machine cancels.
    """
    triples = zip(windows, windows[1:], windows[2:], strict=False)
    # Neighbouring triples share windows: half of them are as good as independent.
    return _usual(
        [(-1) ** at * ((one + next_) / 2 - now) for at, (one, now, next_) in enumerate(triples)], 0.5
    )


def costs_of_two(windows: Sequence[float]) -> tuple[Cost, Cost, Cost]:
    """Of two groups of plants, in windows as `is_on` has them: of both together, and what the steps gain if
    only the first, or only the second one is repaired.
    """
    cycles = [windows[at : at + 5] for at in range(0, len(windows) - 4, 4)]
    # None of them is between two windows of both: a drift of the machine cancels.
    together = _usual([(both + again) / 2 - none for both, _, none, _, again in cycles], 1.0)
    without_first = _usual([again - second for _, _, _, second, again in cycles], 1.0)
    return together, without_first, _usual([both - first for both, first, *_ in cycles], 1.0)


def _usual(costs: Sequence[float], independent: float) -> Cost:
    """The median of all means of two, which a few steps that the machine held up do not move (Hodges and
    Lehmann), by how costs scatter about it.
    """
    middle = statistics.median((a + b) / 2 for at, a in enumerate(costs) for b in costs[at:])
    scatter = 1.4826 * statistics.median(abs(cost - middle) for cost in costs)
    return Cost(middle, 2 * scatter / (independent * len(costs)) ** 0.5)


def _pair(plan: Planted, together: Cost, alone: Sequence[Cost]) -> list[dict[str, Any]]:
    """Each costs what it costs alone, and a part of what only both together do; they add up."""
    gains = [max(0.0, each.ms) for each in alone]
    scale = min(1.0, max(0.0, together.ms) / (sum(gains) or 1.0))
    gains = [scale * gain for gain in gains]
    rest_ms = max(0.0, together.ms) - sum(gains)
    whole_ms = sum(delay.ms for delay in plan.delays)
    return [
        _plant(plan, delay.phase, Cost(gain + rest_ms * delay.ms / whole_ms, together.within_ms), 0.0, group)
        | {"alone_ms": round(own.ms, 2), "alone_within_ms": round(own.within_ms, 2)}
        for group, (delay, gain, own) in enumerate(zip(plan.delays, gains, alone, strict=True))
    ]


def _planted(plan: Planted, work_ms: float) -> dict[str, tuple[float, float]]:
    """By phase the milliseconds of a step that more work takes, and that the rank is slower."""
    found = {phase: (share * work_ms, 0.0) for phase, share in OF_WORK.items() if work_ms}
    for delay in plan.delays:
        work, slow = found.get(delay.phase, (0.0, 0.0))
        found[delay.phase] = work, slow + delay.ms
    return found


def _plant(plan: Planted, phase: str, cost: Cost, work_share: float, group: int = 0) -> dict[str, Any]:
    delay = plan.delays[group] if plan.delays else None
    ranks = delay.ranks if delay else (plan.worker,)
    causes = {work_share >= NAMED_SHARE: "work", work_share <= 1 - NAMED_SHARE: "speed"}
    pattern = delay.pattern if delay else "rotating" if plan.worker is None else "constant"
    return {
        "rank": ranks[0] if len(ranks) == 1 and phase not in WAITS else None,
        "planted_on": list(ranks) if ranks != (None,) else list(range(plan.ranks)),
        "phase": phase,
        "cause": causes.get(True, "both"),
        "work_share": round(work_share, 3),
        "cost_ms": round(cost.ms, 2),
        "within_ms": round(cost.within_ms, 2),
        "from": 1,
        "to": ALWAYS,
        "pattern": pattern,
    }


def _standing(plan: Planted) -> list[dict[str, Any]]:
    """What is uneven all the time, and has no price: who names it is right."""
    if plan.heavy is None:
        return []
    width = plan.ranks // plan.stages
    return [{"ranks": list(range(plan.heavy * width, (plan.heavy + 1) * width)), "phase": "forward"}]
