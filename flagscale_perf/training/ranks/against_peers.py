"""Ranks against the other ranks of their pipeline stage, which have the same to do."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rank_records import StragglerRecord
from flagscale_perf.training.ranks import limits
from flagscale_perf.training.ranks.robust import noise, spread, steady
from flagscale_perf.training.ranks.rounds import groups_of, usual_of_others
from flagscale_perf.training.ranks.stretches import Found, SlowStretch, Stage
from flagscale_perf.training.ranks.work import Work, excess_share

_WINDOW = limits.WINDOW.count
_STILL_SLOW = limits.OVER.value * limits.PEERS_SHARE.value


class AgainstPeers:
    """Names the ranks of a stage that work longer than their peers."""

    def __init__(self, is_lockstep_wider: bool) -> None:
        """`is_lockstep_wider`: an all-to-all of experts makes all ranks of a stage wait for one another."""
        self._is_lockstep_wider = is_lockstep_wider

    def look(self, stage: Stage) -> list[StragglerRecord]:
        """After a round; what begins with it and what is over."""
        now = stage.rounds[-1]
        groups = groups_of(now)
        usual = usual_of_others(groups)
        shares = _steady_shares(stage, usual)
        has_many = len(groups) >= limits.ENOUGH_GROUPS.count
        if has_many and shares:
            stage.spreads.append(spread(list(shares.values()), 0.0))
        records = _those_over(stage, shares, usual)
        above = [rank for rank, share in shares.items() if share > limits.PEERS_SHARE.value]
        for rank in sorted(above, key=lambda rank: -shares[rank]):
            excess_ns = round(shares[rank] * usual[rank].own_ns)
            costs_enough = excess_ns > limits.ITERATION_SHARE.value * (now.seen[rank].block.iteration_ns or 0)
            if (
                costs_enough
                and not stage.is_slow(rank)
                and _is_significant(stage, rank, shares[rank], has_many)
            ):
                ranks, longer_ns = self._inseparable(stage, rank, shares), _longer_than_peers(stage, rank)
                opened = stage.opened(Found(ranks, excess_ns, longer_ns, "peers", now.clock_mhz))
                stage.slow.append(opened)
                records.append(opened.record)
        return records

    def _inseparable(self, stage: Stage, rank: int, shares: Mapping[int, float]) -> list[int]:
        """The rank, and those that rise with it because they do every step together."""
        seen = stage.rounds[-1].seen
        together = [
            other
            for other, share in shares.items()
            if share > limits.OVER.value * shares[rank]
            and (self._is_lockstep_wider or seen[other].who.lockstep == seen[rank].who.lockstep)
        ]
        return sorted(other for other in together if not stage.is_slow(other))[: limits.MAX_NAMED.count]


def _steady_shares(stage: Stage, usual: Mapping[int, Work]) -> dict[int, float]:
    """Takes the newest round into the history. Each rank's excess, as a share of its peers' work, over the
    last rounds together; without ranks that have fewer of them.
    """
    seen = stage.rounds[-1].seen
    for rank, work in usual.items():
        stage.shares[rank].append(excess_share(seen[rank].work, work))
    return {rank: steady(_recent(stage.shares[rank])) for rank in usual if len(stage.shares[rank]) >= _WINDOW}


def _recent(series: Sequence[float]) -> list[float]:
    return [series[place] for place in range(-_WINDOW, 0)]


def _is_significant(stage: Stage, rank: int, share: float, has_many: bool) -> bool:
    """Whether noise does not explain it: each of the last rounds is slow, and together they are far outside
    of what is usual.

    Many peers show by how they differ now what noise is; of a few, only the past does, of whichever of them
    is the noisiest; and as long as there is no past, the last rounds themselves.
    """
    recent = _recent(stage.shares[rank])
    if min(recent) < _STILL_SLOW:
        return False
    own = _past_noise(stage.shares[rank])
    own_limit, limit = limits.OWN_SIGNIFICANCE.value, limits.SIGNIFICANCE.value
    if has_many:
        # A round in which all are alike by chance must not make the next best one significant.
        between = max(stage.spreads[-1], statistics.median(stage.spreads))
        return share > max(limit * between, own_limit * (own or 0.0))
    if own is None:
        now = (max(recent) - min(recent)) / limits.RANGE_OF_THREE.value
        return share > max(limits.EARLY_SHARE.value, limit * now)
    return share > own_limit * max(_past_noise(series) or 0.0 for series in stage.shares.values())


def _past_noise(series: Sequence[float]) -> float | None:
    """Of the rounds before the last ones; None where too little is known."""
    past = list(series)[:-_WINDOW]
    return noise(past) if len(past) >= limits.MIN_HISTORY.count else None


def _those_over(
    stage: Stage, shares: Mapping[int, float], usual: Mapping[int, Work]
) -> list[StragglerRecord]:
    """Continues the stretches under way; the records of those that have come to their end. One of whose
    ranks nothing is known in this round stays as it is.
    """
    over, under_way = [], list[SlowStretch]()
    for stretch in stage.slow:
        known = [rank for rank in stretch.record.ranks if rank in shares]
        slowest = max(known, key=lambda rank: shares[rank], default=None)
        if slowest is not None and shares[slowest] < _STILL_SLOW:
            over.append(stretch.over())
            continue
        if slowest is not None:
            stretch.goes_on(stage.iteration, round(shares[slowest] * usual[slowest].own_ns))
        under_way.append(stretch)
    stage.slow = under_way
    return over


def _longer_than_peers(stage: Stage, rank: int) -> list[float]:
    rounds = [round_ for round_ in stage.rounds if rank in round_.seen]
    return [
        statistics.median(round_.seen[rank].phase_ns(place) - round_.phases_ns[place] for round_ in rounds)
        for place in range(len(PHASES))
    ]
