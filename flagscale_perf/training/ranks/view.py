"""What rank 0 makes of every rank's blocks: all ranks side by side, and the slow, silent and dead ones by
name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.spine.units import numbered
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.ranks.blocks import MAX_RANKS, Block, RankIdentity
from flagscale_perf.training.ranks.records import NodeRecord
from flagscale_perf.training.ranks.stragglers import Stragglers
from flagscale_perf.training.ranks.table import RanksTable
from flagscale_perf.training.ranks.text import straggler_text
from flagscale_perf.training.records import IntervalRecord, Record

SUMMARY_NS = 10 * NS_PER_S
GRACE_NS = 20 * NS_PER_S  # what is told later than this is taken for silence
START_NS = 60 * NS_PER_S  # the same for ranks from which nothing has come yet
MAX_HELD_BLOCKS = 200_000  # in rounds that wait for a rank
MIN_ROUNDS, MAX_ROUNDS = 8, 512


class _Round:
    """Blocks of one number, as they come in."""

    def __init__(self, begun_ns: int) -> None:
        self.begun_ns = begun_ns
        self.blocks: dict[int, Block] = {}


class RanksView:
    """Takes blocks in the order in which they arrive; says what belongs into the run file. Nobody is waited
    for without an end.
    """

    def __init__(self, facts: RunFacts, clock: Callable[[], int] = monotonic_ns) -> None:
        """`facts` of the run; `clock` for marks and patience."""
        self._size = facts.world_size if 0 < facts.world_size <= MAX_RANKS else 1
        self._clock = clock
        self._table = RanksTable(self._size)
        self._stragglers = Stragglers(facts)
        self._known: dict[int, RankIdentity] = {}
        self._awaited = set(range(self._size))  # neither dead nor said to be silent
        self._dead: set[int] = set()
        self._told: dict[int, int] = {}  # last iteration, by rank
        self._ecc: dict[int, int] = {}
        self._gone_back: dict[int, int] = {}  # number of the last block, by rank
        self._rounds: dict[int, _Round] = {}
        self._max_rounds = min(MAX_ROUNDS, max(MIN_ROUNDS, MAX_HELD_BLOCKS // self._size))
        self._closed = -1  # number of the newest closed round
        self._newest = 0  # iteration
        self._begun_ns = self._summed_ns = clock()
        self._has_told_of_phases = self._size == 1

    def met(self, identities: Sequence[RankIdentity]) -> list[Record]:
        """Ranks that are there, again or for the first time."""
        nodes: dict[str, list[RankIdentity]] = defaultdict(list)
        for who in sorted(identities):
            if not 0 <= who.rank < self._size:
                continue
            if who.rank in self._dead:
                self._dead.discard(who.rank)
                self._awaited.add(who.rank)
            if self._known.get(who.rank) != who:
                self._known[who.rank] = who
                nodes[who.hostname].append(who)
        return [_node(hostname, members) for hostname, members in nodes.items()]

    def add(self, block: Block) -> list[Record]:
        """The next block of any rank."""
        rank = block.rank
        if not 0 <= rank < self._size:
            return []
        self._newest = max(self._newest, block.iteration)
        self._notice_rewinding(block)
        self._told[rank] = block.iteration
        if rank not in self._dead:
            self._awaited.add(rank)
        if block.number > self._closed:
            self._rounds.setdefault(block.number, _Round(self._clock())).blocks[rank] = block
        return self._errors_of(block) + self._close_rounds()

    def gone(self, rank: int, iteration: int, why: str) -> list[Record]:
        """A rank's process has ended before its time; `iteration` is its last finished one, `why` a
        phrase.
        """
        if rank in self._dead or not 0 <= rank < self._size:
            return []
        self._dead.add(rank)
        self._awaited.discard(rank)
        who = self._known.get(rank)
        place = f" ({who.hostname}, {who.device}, pid {who.pid})" if who else ""
        return [
            self._event("rank", f"rank {rank}{place} is gone after iteration {iteration}: {why}"),
            *self._close_rounds(),
        ]

    def summary_due(self, interval: IntervalRecord) -> list[Record]:
        """Called after each interval of rank 0."""
        self._newest = max(self._newest, interval.iteration)
        records = self._close_rounds()
        now_ns = self._clock()
        if self._table.is_empty or now_ns - self._summed_ns < SUMMARY_NS:
            return records
        self._summed_ns = now_ns
        return [*records, self._table.take()]

    def close(self) -> list[Record]:
        """The run is over: what is still to be said."""
        records: list[Record] = []
        for number in sorted(self._rounds):
            records += self._finish(number)
        if not self._table.is_empty:
            records.append(self._table.take())
        return records + list(self._stragglers.close())

    def _notice_rewinding(self, block: Block) -> None:
        """After a restart inside the processes, iterations come again: once half of the ranks say so, they
        are new.
        """
        if block.number > self._closed:
            self._gone_back.pop(block.rank, None)
            return
        if block.rank in self._gone_back or block.iteration <= self._told.get(block.rank, -1):
            self._gone_back[block.rank] = block.number
        if 2 * len(self._gone_back.keys() & self._awaited) > len(self._awaited):
            # The blocks that told so are lost; with the numbers behind them everybody is together again.
            self._closed = max(self._gone_back.values())
            self._gone_back.clear()
            self._rounds.clear()

    def _errors_of(self, block: Block) -> list[Record]:
        """Errors of another rank's device; rank 0's are told from its own readings."""
        if block.rank == 0:
            return []
        who = self._known.get(block.rank)
        device = f"rank {block.rank}'s device" + (f" ({who.hostname})" if who else "")
        events: list[Record] = []
        if block.xid:
            events.append(self._event("hardware", f"{device}: the driver reports XID {block.xid}"))
        if block.ecc_uncorrected is not None:
            before = self._ecc.get(block.rank)
            self._ecc[block.rank] = block.ecc_uncorrected
            if before is not None and block.ecc_uncorrected > before:
                text = f"uncorrected memory errors have gone from {before} to {block.ecc_uncorrected}"
                events.append(self._event("hardware", f"{device}: {text}"))
        return events

    def _close_rounds(self) -> list[Record]:
        """Finishes the rounds that everybody has told, or that somebody has had time enough for; in their
        order.
        """
        records: list[Record] = []
        while self._rounds:
            number = min(self._rounds)
            told = self._rounds[number].blocks
            if len(told) < len(self._awaited) or not self._awaited <= told.keys():
                silent = self._silent_in(number)
                if not silent and len(self._rounds) <= self._max_rounds and not self._is_late(number):
                    break
                records += self._told_silent(silent)
            records += self._finish(number)
        return records

    def _is_late(self, number: int) -> bool:
        """Whether others have told even the next round so long ago that nothing more is to be expected of
        this one.

        In training all ranks are within a step of one another, so that a pause in one of them does not bring
        the others that far.
        """
        later = [round_.begun_ns for other, round_ in self._rounds.items() if other > number]
        return bool(later) and self._clock() - min(later) >= GRACE_NS

    def _silent_in(self, number: int) -> list[int]:
        """Ranks that nothing has come from in this round or behind it, though there was time for it."""
        if not self._is_late(number):
            return []
        told = self._rounds[number].blocks
        first = min(block.first_iteration for block in told.values())
        missing = [rank for rank in self._awaited - told.keys() if self._told.get(rank, -1) < first]
        if self._clock() - self._begun_ns < START_NS:
            missing = [rank for rank in missing if rank in self._told]
        return sorted(missing)

    def _told_silent(self, ranks: Sequence[int]) -> list[Record]:
        """One event for each iteration and node after which nothing has come."""
        self._awaited.difference_update(ranks)
        groups: dict[tuple[int | None, str], list[int]] = defaultdict(list)
        for rank in ranks:
            groups[self._told.get(rank), self._known[rank].hostname if rank in self._known else ""].append(
                rank
            )
        events: list[Record] = []
        for (iteration, hostname), members in groups.items():
            place = f" ({hostname})" if hostname else ""
            since = "nothing yet" if iteration is None else f"nothing after iteration {iteration}"
            events.append(
                self._event(
                    "rank",
                    f"{since} from {numbered('rank', members)}{place}; others are at iteration {self._newest}",
                )
            )
        return events

    def _finish(self, number: int) -> list[Record]:
        blocks = self._rounds.pop(number).blocks
        self._closed = number
        self._table.add(blocks)
        found = self._stragglers.look(
            (self._known[rank], block) for rank, block in blocks.items() if rank in self._known
        )
        records: list[Record] = []
        for straggler in found:
            records.append(straggler)
            if not straggler.is_over:
                records.append(self._event("slow", straggler_text(straggler)))
        return records + self._without_phases(blocks)

    def _without_phases(self, blocks: Mapping[int, Block]) -> list[Record]:
        has_steps = any(block.steps for block in blocks.values())
        if self._has_told_of_phases or not has_steps:
            return []
        self._has_told_of_phases = True
        if any(block.phases_ns is not None for block in blocks.values()):
            return []
        return [
            self._event(
                "note",
                "slow ranks are not named: without phases (--perf-breakdown) waiting cannot be told from work",
            )
        ]

    def _event(self, name: str, text: str) -> EventRecord:
        return EventRecord(name, self._clock(), self._newest, text)


def _node(hostname: str, members: Sequence[RankIdentity]) -> NodeRecord:
    return NodeRecord(
        hostname=hostname,
        ranks=[who.rank for who in members],
        pids=[who.pid for who in members],
        devices=[who.device for who in members],
        stages=[who.stage for who in members],
    )
