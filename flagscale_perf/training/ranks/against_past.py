"""A whole stage against what it was: for ranks without peers, and for those that all become slow together."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from flagscale_perf.training.rank_records import StragglerRecord
from flagscale_perf.training.ranks import limits
from flagscale_perf.training.ranks.robust import noise, steady
from flagscale_perf.training.ranks.rounds import Round
from flagscale_perf.training.ranks.stretches import Found, SlowStretch, Stage
from flagscale_perf.training.ranks.work import Work, excess_share

_HISTORY = limits.HISTORY.count
_STILL_SLOW = limits.OVER.value * limits.PAST_SHARE.value


class _Before(NamedTuple):
    """The median rank of a round, without its ranks, which would take more memory."""

    work: Work
    phases_ns: tuple[int, ...]
    clock_mhz: float | None


class AgainstPast:
    """Names all ranks of one stage where their median one works longer than it used to."""

    def __init__(self) -> None:
        self._past: deque[_Before] = deque(maxlen=_HISTORY)  # rounds before the last ones
        self._noises: deque[float] = deque(maxlen=_HISTORY)  # of this past, as it was in each round
        self._microbatches: int | None = None
        self._risen: SlowStretch | None = None

    def look(self, stage: Stage) -> list[StragglerRecord]:
        """After a round; what begins with it and what is over. Ranks that are slow against their peers are
        named already, and may raise the median one's work.
        """
        records = self._with_new_batch(stage)
        is_complete = len(stage.rounds) == limits.WINDOW.count
        if is_complete and len(self._past) >= limits.MIN_HISTORY.count and not stage.slow:
            records += self._compare(stage)
        if is_complete and self._risen is None:  # what is slow is not to become the usual
            oldest = stage.rounds[0]
            self._past.append(_Before(oldest.work, oldest.phases_ns, oldest.clock_mhz))
        return records

    def close(self) -> list[StragglerRecord]:
        """Ends the stretch under way, if there is one."""
        risen, self._risen = self._risen, None
        return [] if risen is None else [risen.over()]

    def _with_new_batch(self, stage: Stage) -> list[StragglerRecord]:
        """With another number of micro-batches there is another amount of work: what was before is no
        measure.
        """
        newest = stage.rounds[-1]
        before, self._microbatches = self._microbatches, next(iter(newest.seen.values())).block.microbatches
        if before in (None, self._microbatches):
            return []
        stage.rounds.clear()
        stage.rounds.append(newest)
        self._past.clear()
        self._noises.clear()
        return self.close()

    def _compare(self, stage: Stage) -> list[StragglerRecord]:
        usual = self._usual()
        shares = [excess_share(round_.work, usual) for round_ in stage.rounds]
        share = steady(shares)
        excess_ns = round(share * usual.own_ns)
        if self._risen is None:
            if not self._has_risen(shares, usual, stage.rounds[-1]):
                return []
            self._risen = stage.opened(self._found(stage, excess_ns))
            return [self._risen.record]
        if share < _STILL_SLOW:
            return self.close()
        self._risen.goes_on(stage.iteration, excess_ns)
        return []

    def _usual(self) -> Work:
        works = [before.work for before in self._past]
        own, mixed, wait = (
            round(statistics.median(work[place] or 0 for work in works)) for place in range(3)
        )
        return Work(own, mixed, wait, None)

    def _has_risen(self, shares: Sequence[float], usual: Work, now: Round) -> bool:
        """Whether the last rounds cost enough, each of them is slow, and together they are above the noise.

        By chance the last rounds may have been quieter than usual, most of all where what slows a step lasts
        for some. So the noise is at least the upper quartile of what it was.
        """
        self._noises.append(noise([excess_share(before.work, usual) for before in self._past]))
        usual_noise = max(self._noises[-1], sorted(self._noises)[3 * len(self._noises) // 4])
        share = steady(shares)
        return (
            share * usual.own_ns > limits.ITERATION_SHARE.value * now.iteration_ns
            and min(shares) >= _STILL_SLOW
            and share > max(limits.PAST_SHARE.value, limits.SIGNIFICANCE.value * usual_noise)
        )

    def _found(self, stage: Stage, excess_ns: int) -> Found:
        usual = _median_phases([before.phases_ns for before in self._past])
        now = _median_phases([round_.phases_ns for round_ in stage.rounds])
        clocks = [before.clock_mhz for before in self._past if before.clock_mhz is not None]
        return Found(
            ranks=sorted(stage.rounds[-1].seen)[: limits.MAX_NAMED.count],
            excess_ns=excess_ns,
            longer_ns=[mine - before for mine, before in zip(now, usual, strict=True)],
            against="past",
            usual_clock_mhz=statistics.median(clocks) if clocks else None,
        )


def _median_phases(rows: Sequence[tuple[int, ...]]) -> list[float]:
    return [statistics.median(values) for values in zip(*rows, strict=True)]
