"""The answer to `--fail-if-slower`, and which disturbances leave a verdict open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from flagscale_perf.analysis.compare.compare import BASE, NEW, NOT_SLOWER, Gate
from flagscale_perf.analysis.compare.judge import FASTER, SLOWER, UNDECIDED, Needed, Row, distance


class Judgement(NamedTuple):
    """What is judged by itself: a run's units, or a stretch of them.

    Attributes:
        whole: the verdict.
        disturbed: of each side's time, the most that disturbances took.
    """

    whole: Row
    disturbed: Mapping[str, float]


def gate(whole: Row, limit: float, needed: Callable[[float], Needed | None]) -> Gate:
    """Whether NEW is slower than the limit allows. `needed` says what would make the interval so narrow that
    it reaches no farther than that from the change, see `judge.distance`.
    """
    share, high = whole.share or 0.0, whole.share_high
    if whole.verdict == SLOWER and share > limit:
        return Gate(limit, SLOWER)
    if high is not None and high < limit:
        return Gate(limit, NOT_SLOWER)
    return Gate(limit, UNDECIDED, needed(distance(share) if share > limit else distance(share, limit)))


def gate_of(
    judged: Sequence[Judgement], limit: float, needed: Callable[[float], Needed | None]
) -> tuple[Gate, set[str]]:
    """The answer for all that is judged by itself: `SLOWER` where NEW is in any of it, `NOT_SLOWER` where it
    is in none; and sides whose disturbances leave it undecided.
    """
    answers = [gate(one.whole, limit, needed) for one in judged]
    doubted = [doubted_side(answer.outcome, one, limit) for answer, one in zip(answers, judged, strict=True)]
    outcomes = {UNDECIDED if side else one.outcome for one, side in zip(answers, doubted, strict=True)}
    if SLOWER in outcomes or outcomes == {NOT_SLOWER}:
        return Gate(limit, SLOWER if SLOWER in outcomes else NOT_SLOWER), set()
    needed_of_one = answers[0].needed if len(judged) == 1 else None
    return Gate(limit, UNDECIDED, needed_of_one), {side for side in doubted if side}


def doubted_sides(judged: Sequence[Judgement]) -> set[str]:
    """Sides whose disturbances may be all there is to every verdict that they can make."""
    found = [(one.whole.verdict, doubted_side(one.whole.verdict, one, 0.0)) for one in judged]
    firm = {verdict for verdict, side in found if side is None}
    return {side for verdict, side in found if side and verdict not in firm}


def doubted_side(verdict: str, one: Judgement, limit: float) -> str | None:
    """The side whose disturbances can make this verdict by themselves; None where they cannot.

    Without the time that they took, a slower NEW may be no slower than BASE and the limit. Beside a BASE
    without it, a NEW that is faster, or not slower, may be slower. Both are judged by the end of the
    interval that is nearer to the limit.
    """
    share = one.disturbed[NEW if verdict == SLOWER else BASE]
    low, high = 1 + (one.whole.share_low or 0.0), 1 + (one.whole.share_high or 0.0)
    if share and verdict == SLOWER:
        return NEW if low * (1 - share) <= 1 + limit else None
    if share and verdict in (FASTER, NOT_SLOWER):
        return BASE if high >= (1 + limit) * (1 - share) else None
    return None
