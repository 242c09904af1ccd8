"""A pipeline stage against the other stages."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping

from flagscale_perf.training.ranks import limits
from flagscale_perf.training.ranks.rounds import Round
from flagscale_perf.training.ranks.stretches import Found


class AgainstStages:
    """Looks for a stage that has more to do than the others from the start: no slow rank, but a matter of the
    model's split, so it is looked for in the first rounds only.
    """

    def __init__(self) -> None:
        self._rounds = 0
        self._ahead: deque[dict[int, float]] = deque(maxlen=limits.STAGE_WINDOW.count)

    def look(self, rounds: Mapping[int, Round]) -> tuple[int, Found] | None:
        """The next round of each stage, by its number; the heaviest stage and its ranks, once it is clear."""
        if len(rounds) < 2 or self._rounds >= limits.STAGE_ROUNDS.count:
            return None
        self._rounds += 1
        own_ns = {number: round_.work.own_ns for number, round_ in rounds.items()}
        usual_ns = {
            number: statistics.median(ns for other, ns in own_ns.items() if other != number)
            for number in own_ns
        }
        self._ahead.append({number: ns / usual_ns[number] - 1 for number, ns in own_ns.items()})
        heaviest = max(own_ns, key=lambda number: own_ns[number])
        excess_ns = round(own_ns[heaviest] - usual_ns[heaviest])
        is_costly = excess_ns > limits.ITERATION_SHARE.value * rounds[heaviest].iteration_ns
        return (
            (heaviest, _found(rounds, heaviest, excess_ns)) if is_costly and self._lasts(heaviest) else None
        )

    def _lasts(self, heaviest: int) -> bool:
        """Whether the same stage was ahead in all of the last rounds."""
        is_complete = len(self._ahead) == limits.STAGE_WINDOW.count
        return is_complete and all(
            shares.get(heaviest, 0.0) > limits.STAGE_SHARE.value for shares in self._ahead
        )


def _found(rounds: Mapping[int, Round], heaviest: int, excess_ns: int) -> Found:
    others = [round_.phases_ns for number, round_ in rounds.items() if number != heaviest]
    usual_ns = [statistics.median(values) for values in zip(*others, strict=True)]
    mine = rounds[heaviest]
    return Found(
        ranks=sorted(mine.seen)[: limits.MAX_NAMED.count],
        excess_ns=excess_ns,
        longer_ns=[ns - usual for ns, usual in zip(mine.phases_ns, usual_ns, strict=True)],
        against="stages",
        usual_clock_mhz=None,
    )
