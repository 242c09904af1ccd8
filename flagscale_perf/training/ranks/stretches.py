"""Slow stretches of ranks, from the rounds they are found in to their end, and what is kept of a stage."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from flagscale_perf.spine.samples import Reservoir
from flagscale_perf.training.clocks import capped_by, caps_in, is_lower
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rank_records import StragglerRecord
from flagscale_perf.training.ranks import limits
from flagscale_perf.training.ranks.blocks import Block
from flagscale_perf.training.ranks.rounds import Round, median_clock
from flagscale_perf.training.ranks.work import MIXED_PLACES, OWN_PLACES


class Found(NamedTuple):
    """Ranks of a stage that are slow.

    Attributes:
        ranks: ascending.
        excess_ns: what they work longer per step.
        longer_ns: the same by phase, in the order of `PHASES`.
        against: as in `StragglerRecord`.
        usual_clock_mhz: of those they are compared with.
    """

    ranks: list[int]
    excess_ns: int
    longer_ns: Sequence[float]
    against: str
    usual_clock_mhz: float | None


class SlowStretch:
    """A slow stretch under way.

    Attributes:
        record: as it was found, with the last iteration that was still slow.
    """

    def __init__(self, record: StragglerRecord) -> None:
        self.record = record
        self._excess = Reservoir()
        self._excess.add(record.excess_ns)

    def goes_on(self, iteration: int, excess_ns: int) -> None:
        """Still slow at the end of another block."""
        self.record = replace(self.record, iteration=iteration)
        self._excess.add(excess_ns)

    def over(self) -> StragglerRecord:
        """The record of its end, with the median excess."""
        excess_ns = self._excess.quantile(0.5) or self.record.excess_ns
        return replace(self.record, is_over=True, excess_ns=excess_ns)


class Stage:
    """What is kept of one pipeline stage and its ranks.

    Attributes:
        rounds: the last ones.
        shares: excess over the peers' work by rank, round after round.
        spreads: how much that differs between ranks, round after round.
        slow: stretches under way, of ranks that are slow against their peers.
    """

    def __init__(self) -> None:
        history = limits.HISTORY.count
        self.rounds: deque[Round] = deque(maxlen=limits.WINDOW.count)
        self.shares: dict[int, deque[float]] = defaultdict(
            lambda: deque(maxlen=history + limits.WINDOW.count)
        )
        self.spreads: deque[float] = deque(maxlen=history)
        self.slow: list[SlowStretch] = []

    @property
    def iteration(self) -> int:
        """The last one that a rank has finished."""
        return max(each.block.iteration for each in self.rounds[-1].seen.values())

    def is_slow(self, rank: int) -> bool:
        """Whether it is named slow against its peers at present."""
        return any(rank in stretch.record.ranks for stretch in self.slow)

    def opened(self, found: Found) -> SlowStretch:
        """The stretch of what was found; it begins with the blocks it was found in."""
        who = self.rounds[-1].seen[found.ranks[0]].who
        blocks = [round_.seen[who.rank].block for round_ in self.rounds if who.rank in round_.seen]
        record = StragglerRecord(
            first_iteration=min(block.first_iteration for block in blocks),
            iteration=self.iteration,
            is_over=False,
            ranks=found.ranks,
            hostname=who.hostname,
            device=who.device,
            stage=who.stage,
            phase=_longest_phase(found),
            excess_ns=found.excess_ns,
            iteration_ns=self.rounds[-1].iteration_ns,
            against=found.against,
            # A stage has more to do because of the model's split, whatever its devices say.
            cause=None if found.against == "stages" else cause_of(blocks, found.usual_clock_mhz),
        )
        return SlowStretch(record)


def _longest_phase(found: Found) -> str:
    """The phase that is longest beyond the usual. One that may hold waiting counts only where the ranks' own
    work does not explain half of the excess.
    """
    own_ns = sum(found.longer_ns[place] for place in OWN_PLACES)
    places = OWN_PLACES if own_ns >= found.excess_ns / 2 else MIXED_PLACES
    return PHASES[max(places, key=lambda place: found.longer_ns[place])]


def cause_of(blocks: Sequence[Block], usual_mhz: float | None) -> str | None:
    """What the device says of these blocks: a cap, or just a lower clock; None if nothing."""
    clock_mhz = median_clock(blocks)
    throttle = ", ".join(block.throttle for block in blocks if block.throttle)
    caps = caps_in(throttle, clock_mhz, usual_mhz)
    if caps:
        return capped_by(caps)
    if is_lower(clock_mhz, usual_mhz):
        return f"clock at {clock_mhz:.0f} MHz instead of {usual_mhz:.0f} MHz"
    return None
