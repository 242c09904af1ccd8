"""Names the ranks that make the others wait. What is compared with what, and why these limits:
docs/metrics.md, "Ranks".
"""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from flagscale_perf.training.hardware import CAPS, reasons_in
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.ranks.blocks import Block, RankIdentity
from flagscale_perf.training.ranks.records import StragglerRecord
from flagscale_perf.training.ranks.robust import noise, spread, steady
from flagscale_perf.training.ranks.rounds import (
    Round,
    Seen,
    groups_of,
    median_clock,
    round_of,
    usual_of_others,
)
from flagscale_perf.training.ranks.work import MIXED_PLACES, OWN_PLACES, Work, excess_ns, work_of
from flagscale_perf.training.window import Reservoir

WINDOW = 3  # blocks in a row that have to be slow
HISTORY = 64  # blocks that tell how much a value usually varies
MIN_HISTORY = 6
PEERS_SHARE = 0.05  # of the peers' work
EARLY_SHARE = 0.08  # where there is too little to know the noise from
PAST_SHARE = 0.07
STAGE_SHARE = 0.10
OVER = 0.5  # times one of these: not slow any more
ITERATION_SHARE = 0.02  # what costs the iteration less is not worth a word
SIGNIFICANCE = 5.5  # standard deviations of the noise between peers
OWN_SIGNIFICANCE = 4.5  # of a rank's own noise
ENOUGH_GROUPS = 5  # to take the noise from how peers differ now
STAGE_WINDOW, STAGE_ROUNDS = (
    4,
    8,
)  # blocks that all have to show the same stage ahead; blocks after the start among which they are
LOWER_CLOCK = 0.97  # times the usual one
MAX_NAMED = 64
_RANGE_OF_THREE = 2.5  # range of three values over the standard deviation of their median


class _Finding(NamedTuple):
    """What is found of some ranks of a stage."""

    ranks: list[int]
    excess_ns: int
    longer_ns: Sequence[float]  # by phase
    against: str
    usual_clock_mhz: float | None


class _Open:
    """A slow stretch under way."""

    def __init__(self, record: StragglerRecord) -> None:
        self.record = record
        self._excess = Reservoir()
        self._excess.add(record.excess_ns)

    def goes_on(self, iteration: int, excess: int) -> None:
        """Still slow at the end of another block."""
        self.record = replace(self.record, iteration=iteration)
        self._excess.add(excess)

    def over(self) -> StragglerRecord:
        """Its last word."""
        return replace(
            self.record, is_over=True, excess_ns=self._excess.quantile(0.5) or self.record.excess_ns
        )


class _Stage:
    """What is kept of one pipeline stage and its ranks."""

    def __init__(self) -> None:
        self.rounds: deque[Round] = deque(maxlen=WINDOW)
        self.shares: dict[int, deque[float]] = defaultdict(
            lambda: deque(maxlen=HISTORY + WINDOW)
        )  # excess over work, by rank
        self.spreads: deque[float] = deque(maxlen=HISTORY)  # of that excess between ranks
        self.slow: list[_Open] = []  # against peers
        self.past: deque[tuple[Work, tuple[int, ...], float | None]] = deque(
            maxlen=HISTORY
        )  # rounds before the last ones
        self.noises: deque[float] = deque(maxlen=HISTORY)  # of this past
        self.risen: _Open | None = None  # against it
        self.microbatches: int | None = None

    def is_slow(self, rank: int) -> bool:
        return any(rank in open_.record.ranks for open_ in self.slow)


class Stragglers:
    """Looks at the blocks of all ranks round by round. What it keeps of a rank does not grow with the run."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        """`facts` of the run header."""
        experts = facts.get("expert_parallel")
        self._is_lockstep_wider = (
            isinstance(experts, int) and experts > 1
        )  # an all-to-all of experts lets all of a stage wait
        self._stages: dict[int, _Stage] = defaultdict(_Stage)
        self._ahead: deque[dict[int, float]] = deque(maxlen=STAGE_WINDOW)
        self._stage_rounds = 0
        self._heavy: _Open | None = None

    def look(self, pairs: Iterable[tuple[RankIdentity, Block]]) -> list[StragglerRecord]:
        """The blocks of one round; what begins with them and what is over."""
        by_stage: dict[int, list[Seen]] = defaultdict(list)
        for who, block in pairs:
            work = work_of(block)
            if work is not None and work.own_ns > 0:
                by_stage[who.stage].append(Seen(who, block, work))
        found: list[StragglerRecord] = []
        for number, seen in sorted(by_stage.items()):
            stage = self._stages[number]
            stage.rounds.append(round_of(seen))
            found += self._against_peers(stage)
            found += _against_past(stage)
        return found + self._against_stages({number: self._stages[number].rounds[-1] for number in by_stage})

    def close(self) -> list[StragglerRecord]:
        """The run is over, and with it every stretch."""
        open_ = [each for stage in self._stages.values() for each in (*stage.slow, stage.risen)]
        return [each.over() for each in (*open_, self._heavy) if each is not None]

    def _against_peers(self, stage: _Stage) -> list[StragglerRecord]:
        now = stage.rounds[-1]
        groups = groups_of(now)
        usual = usual_of_others(groups)
        for rank, work in usual.items():
            stage.shares[rank].append(excess_ns(now.seen[rank].work, work) / max(work.own_ns, 1))
        now_share = {
            rank: steady(_recent(stage.shares[rank])) for rank in usual if len(stage.shares[rank]) >= WINDOW
        }
        is_many = len(groups) >= ENOUGH_GROUPS
        if is_many and now_share:
            stage.spreads.append(spread(list(now_share.values()), 0.0))
        found = _those_over(stage, now_share, usual)
        for rank in sorted(now_share, key=lambda rank: -now_share[rank]):
            share = now_share[rank]
            if share <= PEERS_SHARE:
                break
            excess = round(share * usual[rank].own_ns)
            is_costly = excess > ITERATION_SHARE * (now.seen[rank].block.iteration_ns or 0)
            if is_costly and not stage.is_slow(rank) and _is_significant(stage, rank, share, is_many):
                ranks = self._inseparable(stage, rank, now_share)
                opened = _Open(
                    _record(
                        stage,
                        _Finding(ranks, excess, _longer_than_peers(stage, rank), "peers", now.clock_mhz),
                    )
                )
                stage.slow.append(opened)
                found.append(opened.record)
        return found

    def _inseparable(self, stage: _Stage, rank: int, now_share: Mapping[int, float]) -> list[int]:
        """The rank, and those that rise with it because they do every step together."""
        seen = stage.rounds[-1].seen
        together = [
            other
            for other, share in now_share.items()
            if share > OVER * now_share[rank]
            and (self._is_lockstep_wider or seen[other].who.lockstep == seen[rank].who.lockstep)
        ]
        return sorted(other for other in together if not stage.is_slow(other))[:MAX_NAMED]

    def _against_stages(self, rounds: Mapping[int, Round]) -> list[StragglerRecord]:
        """A stage that from the start has more to do than the others is no slow rank, but a matter of the
        model's split; told once.
        """
        if len(rounds) < 2 or self._stage_rounds >= STAGE_ROUNDS or self._heavy is not None:
            return []
        self._stage_rounds += 1
        own_ns = {number: round_.work.own_ns for number, round_ in rounds.items()}
        others_ns = {
            number: statistics.median(ns for other, ns in own_ns.items() if other != number)
            for number in own_ns
        }
        self._ahead.append({number: ns / others_ns[number] - 1 for number, ns in own_ns.items()})
        heaviest = max(own_ns, key=lambda number: own_ns[number])
        excess = round(own_ns[heaviest] - others_ns[heaviest])
        is_lasting = len(self._ahead) == STAGE_WINDOW and all(
            shares.get(heaviest, 0.0) > STAGE_SHARE for shares in self._ahead
        )
        if not is_lasting or excess <= ITERATION_SHARE * rounds[heaviest].iteration_ns:
            return []
        others = zip(
            *(round_.phases_ns for number, round_ in rounds.items() if number != heaviest), strict=True
        )
        longer = [
            mine - statistics.median(theirs)
            for mine, theirs in zip(rounds[heaviest].phases_ns, others, strict=True)
        ]
        ranks = sorted(rounds[heaviest].seen)[:MAX_NAMED]
        self._heavy = _Open(_record(self._stages[heaviest], _Finding(ranks, excess, longer, "stages", None)))
        return [self._heavy.record]


def _recent(series: Sequence[float]) -> list[float]:
    return [series[place] for place in range(-WINDOW, 0)]


def _is_significant(stage: _Stage, rank: int, share: float, is_many: bool) -> bool:
    """Whether noise does not explain it: every one of the last blocks is slow, and together they are far
    outside of what is usual.
    """
    recent = _recent(stage.shares[rank])
    if min(recent) < OVER * PEERS_SHARE:
        return False
    own = _noise(list(stage.shares[rank])[:-WINDOW])
    if is_many:
        between = max(stage.spreads[-1], statistics.median(stage.spreads))
        return share > max(SIGNIFICANCE * between, OWN_SIGNIFICANCE * (own or 0.0))
    if own is None:
        return share > max(EARLY_SHARE, SIGNIFICANCE * (max(recent) - min(recent)) / _RANGE_OF_THREE)
    return share > OWN_SIGNIFICANCE * max(
        _noise(list(series)[:-WINDOW]) or 0.0 for series in stage.shares.values()
    )


def _noise(series: Sequence[float]) -> float | None:
    """None where too little is known."""
    return noise(series) if len(series) >= MIN_HISTORY else None


def _those_over(
    stage: _Stage, now_share: Mapping[int, float], usual: Mapping[int, Work]
) -> list[StragglerRecord]:
    """Goes on with the stretches under way; those that have come to their end."""
    over = []
    for open_ in list(stage.slow):
        known = [rank for rank in open_.record.ranks if rank in now_share]
        if not known:
            continue
        slowest = max(known, key=lambda rank: now_share[rank])
        if now_share[slowest] >= OVER * PEERS_SHARE:
            open_.goes_on(_iteration(stage), round(now_share[slowest] * usual[slowest].own_ns))
        else:
            stage.slow.remove(open_)
            over.append(open_.over())
    return over


def _against_past(stage: _Stage) -> list[StragglerRecord]:
    """The whole stage against what it was: for ranks without peers, and for those that all become slow
    together.
    """
    found = _with_new_batch(stage)
    if len(stage.past) >= MIN_HISTORY and len(stage.rounds) == WINDOW and not stage.slow:
        own, mixed, wait = (
            round(statistics.median(work[place] or 0 for work, _, _ in stage.past)) for place in range(3)
        )
        usual = Work(own, mixed, wait, None)
        shares = [excess_ns(round_.work, usual) / max(usual.own_ns, 1) for round_ in stage.rounds]
        share = steady(shares)
        excess = round(share * usual.own_ns)
        if stage.risen is not None and share >= OVER * PAST_SHARE:
            stage.risen.goes_on(_iteration(stage), excess)
        elif stage.risen is not None:
            found.append(stage.risen.over())
            stage.risen = None
        elif _has_risen(stage, shares, usual):
            stage.risen = _Open(_record(stage, _past_finding(stage, excess)))
            found.append(stage.risen.record)
    if len(stage.rounds) == WINDOW and stage.risen is None:
        oldest = stage.rounds[0]
        stage.past.append((oldest.work, oldest.phases_ns, oldest.clock_mhz))
    return found


def _with_new_batch(stage: _Stage) -> list[StragglerRecord]:
    """With another number of micro-batches there is another amount of work: what was before is no measure."""
    microbatches = next(iter(stage.rounds[-1].seen.values())).block.microbatches
    is_new, stage.microbatches = stage.microbatches not in (None, microbatches), microbatches
    if not is_new:
        return []
    newest = stage.rounds[-1]
    stage.rounds.clear()
    stage.rounds.append(newest)
    stage.past.clear()
    stage.noises.clear()
    risen, stage.risen = stage.risen, None
    return [risen.over()] if risen is not None else []


def _has_risen(stage: _Stage, shares: Sequence[float], usual: Work) -> bool:
    stage.noises.append(noise([excess_ns(work, usual) / max(usual.own_ns, 1) for work, _, _ in stage.past]))
    # By chance the last blocks may have been quieter than usual, most of all where what slows a step lasts
    # for some.
    usual_noise = max(stage.noises[-1], sorted(stage.noises)[3 * len(stage.noises) // 4])
    share = steady(shares)
    is_costly = share * usual.own_ns > ITERATION_SHARE * stage.rounds[-1].iteration_ns
    return (
        is_costly and min(shares) >= OVER * PAST_SHARE and share > max(PAST_SHARE, SIGNIFICANCE * usual_noise)
    )


def _past_finding(stage: _Stage, excess: int) -> _Finding:
    usual = [
        statistics.median(values) for values in zip(*(phases for _, phases, _ in stage.past), strict=True)
    ]
    now = [
        statistics.median(values)
        for values in zip(*(round_.phases_ns for round_ in stage.rounds), strict=True)
    ]
    clocks = [clock for _, _, clock in stage.past if clock is not None]
    ranks = sorted(stage.rounds[-1].seen)[:MAX_NAMED]
    longer = [mine - before for mine, before in zip(now, usual, strict=True)]
    return _Finding(ranks, excess, longer, "past", statistics.median(clocks) if clocks else None)


def _longer_than_peers(stage: _Stage, rank: int) -> list[float]:
    rounds = [round_ for round_ in stage.rounds if rank in round_.seen]
    return [
        statistics.median(round_.seen[rank].phase_ns(place) - round_.phases_ns[place] for round_ in rounds)
        for place in range(len(PHASES))
    ]


def _record(stage: _Stage, finding: _Finding) -> StragglerRecord:
    """The finding as it is written; the stretch begins with the blocks it was found in."""
    who = stage.rounds[-1].seen[finding.ranks[0]].who
    blocks = [round_.seen[who.rank].block for round_ in stage.rounds if who.rank in round_.seen]
    # What is longer in phases that may hold waiting counts only where the rank's own work does not explain
    # it.
    own_ns = sum(finding.longer_ns[place] for place in OWN_PLACES)
    places = OWN_PLACES if own_ns >= finding.excess_ns / 2 else MIXED_PLACES
    return StragglerRecord(
        first_iteration=min(block.first_iteration for block in blocks),
        iteration=_iteration(stage),
        is_over=False,
        ranks=finding.ranks,
        hostname=who.hostname,
        device=who.device,
        stage=who.stage,
        phase=PHASES[max(places, key=lambda place: finding.longer_ns[place])],
        excess_ns=finding.excess_ns,
        iteration_ns=stage.rounds[-1].iteration_ns,
        against=finding.against,
        cause=None if finding.against == "stages" else cause_of(blocks, finding.usual_clock_mhz),
    )


def _iteration(stage: _Stage) -> int:
    return max(each.block.iteration for each in stage.rounds[-1].seen.values())


def cause_of(blocks: Sequence[Block], usual_mhz: float | None) -> str | None:
    """What the device says; a cap explains nothing where the clock is not lower than usual, or is not known
    to be.
    """
    clock_mhz = median_clock(blocks)
    caps = set().union(*(reasons_in(block.throttle or "") for block in blocks)) & set(CAPS)
    capped = f"clock capped by {' and '.join(sorted(caps))}" if caps else None
    if clock_mhz is None or usual_mhz is None:
        return capped
    if clock_mhz >= LOWER_CLOCK * usual_mhz:
        return None
    return capped or f"clock at {clock_mhz:.0f} MHz instead of {usual_mhz:.0f} MHz"
