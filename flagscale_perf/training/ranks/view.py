"""Every rank's blocks in rank 0's writer: ranks side by side, and the slow, silent and dead ones by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S, monotonic_ns
from flagscale_perf.spine.live import BEGINS, ENDS, WORSENS, FindingRecord
from flagscale_perf.spine.records import EventRecord, Record
from flagscale_perf.spine.units import numbered
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.host import CpuWatch
from flagscale_perf.training.ledger.naming import LIVE
from flagscale_perf.training.rank_records import NodeRecord, StragglerIdentity, StragglerRecord
from flagscale_perf.training.ranks.blocks import MAX_RANKS, Block, RankIdentity, block_steps
from flagscale_perf.training.ranks.late import LateRanks, straggler_text
from flagscale_perf.training.ranks.table import RanksTable
from flagscale_perf.training.records import IntervalRecord
from flagscale_perf.training.remarks import device_errors

SUMMARY_NS = 10 * NS_PER_S
GRACE_NS = 20 * NS_PER_S  # a rank whose block comes later than this is called silent
END_GRACE_NS = 5 * NS_PER_S  # the same once the run has ended: twice what a block needs from node to node
START_NS = 60 * NS_PER_S  # the same for ranks from which nothing has come yet
MAX_HELD_BLOCKS = 200_000  # in rounds that wait for a rank
MIN_ROUNDS, MAX_ROUNDS = 8, 512


class _Round:
    def __init__(self, begun_ns: int) -> None:
        self.begun_ns = begun_ns
        self.blocks: dict[int, Block] = {}


class _Roster:
    """The ranks that are there.

    Attributes:
        known: ranks that were found.
        awaited: ranks that are neither dead nor reported as silent.
        last: the iteration of each rank's newest block.
    """

    def __init__(self, size: int) -> None:
        self.known: dict[int, RankIdentity] = {}
        self.awaited = set(range(size))
        self.last: dict[int, int] = {}
        self._dead: set[int] = set()

    def join(self, who: RankIdentity) -> bool:
        """Whether the rank is new; a dead one that was started again is awaited again."""
        if who.rank in self._dead:
            self._dead.discard(who.rank)
            self.awaited.add(who.rank)
        is_new = self.known.get(who.rank) != who
        self.known[who.rank] = who
        return is_new

    def hear(self, block: Block) -> None:
        """Notes a block of a rank; one that was silent is awaited again."""
        self.last[block.rank] = block.iteration
        if block.rank not in self._dead:
            self.awaited.add(block.rank)

    def bury(self, rank: int) -> bool:
        """The rank is dead; False if that was known."""
        is_news = rank not in self._dead
        self._dead.add(rank)
        self.awaited.discard(rank)
        return is_news


class _Told:
    """Attributes:
    lost: dead and silent ranks, by what was told of them.
    slow: stretches that were told.
    """

    def __init__(self) -> None:
        self.lost: dict[int, FindingRecord] = {}
        self.slow: set[StragglerIdentity] = set()


class _Machines:
    """Devices and hosts of other ranks than 0, whose own readings tell of them."""

    def __init__(self) -> None:
        self._ecc: dict[int, int] = {}
        self._cpu: dict[int, CpuWatch] = {}

    def add(self, block: Block, who: RankIdentity | None) -> list[FindingRecord]:
        """What the block of a rank shows, of which `who` is known."""
        rank = block.rank
        if rank == 0:
            return []
        place = f" ({who.hostname})" if who else ""
        device = f"rank {rank}'s device{place}"
        texts = device_errors(block.xid, block.ecc_uncorrected, self._ecc.get(rank))
        if block.ecc_uncorrected is not None:
            self._ecc[rank] = block.ecc_uncorrected
        watch = self._cpu.setdefault(rank, CpuWatch(f"rank {rank}{place}"))
        errors = [FindingRecord("hardware", BEGINS, f"{device}: {text}", subject=device) for text in texts]
        return watch.add(block.host) + errors


class RanksView:
    """Takes blocks in the order in which they arrive and makes the records of them. A rank that is missing
    is waited for, but not for ever.
    """

    def __init__(
        self, facts: RunFacts, clock: Callable[[], int] = monotonic_ns, least: float = LIVE.value
    ) -> None:
        """`facts` of the run; `clock` for the time of events, and how long to wait for a rank; `least`: share
        of a step from which a rank is late.
        """
        self._size = facts.world_size if 0 < facts.world_size <= MAX_RANKS else 1
        self._steps = block_steps(self._size)
        self._clock = clock
        self._table = RanksTable(self._size)
        self._late = LateRanks(least, facts.work_flops)
        self._roster = _Roster(self._size)
        self._machines, self._told = _Machines(), _Told()
        self._rounds: dict[int, _Round] = {}
        self._max_rounds = min(MAX_ROUNDS, max(MIN_ROUNDS, MAX_HELD_BLOCKS // self._size))
        self._closed = -1  # number of the newest closed round
        self._newest = 0  # iteration
        self._begun_ns = self._summed_ns = clock()
        self._is_note_done = self._size == 1

    def join(self, identities: Sequence[RankIdentity]) -> list[Record]:
        """Ranks that were found, for the first time or again after a restart."""
        nodes: dict[str, list[RankIdentity]] = defaultdict(list)
        for who in sorted(identities):
            if 0 <= who.rank < self._size and self._roster.join(who):
                nodes[who.hostname].append(who)
        back = [record for members in nodes.values() for who in members for record in self._back(who.rank)]
        return [*(_node(hostname, members) for hostname, members in nodes.items()), *back]

    def add(self, block: Block) -> list[Record]:
        """A block of any rank; the records that it calls for."""
        rank = block.rank
        if not 0 <= rank < self._size:
            return []
        self._newest = max(self._newest, block.iteration)
        self._roster.hear(block)
        if (number := self._number(block)) > self._closed:
            self._rounds.setdefault(number, _Round(self._clock())).blocks[rank] = block
        found = self._machines.add(block, self._roster.known.get(rank))
        return self._back(rank) + list(map(self._stamped, found)) + self._close_rounds()

    def lost(self, rank: int, iteration: int, why: str) -> list[Record]:
        """A rank's process ended too early, after `iteration`; `why` is a phrase."""
        if not 0 <= rank < self._size or not self._roster.bury(rank):
            return []
        who = self._roster.known.get(rank)
        place = f" ({who.hostname}, {who.device}, pid {who.pid})" if who else ""
        text = f"rank {rank}{place} is gone after iteration {iteration}: {why}"
        return [self._lose([rank], text, who), *self._close_rounds()]

    def vanished(self, why: str) -> Record:
        """A rank is gone that nobody has seen die: one of those that have never come, if there are any."""
        ranks = sorted(self._roster.awaited - self._roster.known.keys())
        for rank in ranks:
            self._roster.bury(rank)
        text = f"one of {numbered('rank', ranks)} is gone: {why}" if ranks[1:] else f"a rank is gone: {why}"
        return self._lose(ranks, f"rank {ranks[0]} is gone: {why}" if len(ranks) == 1 else text, None)

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
        """The run is over: the records of what has not been written yet.

        The last blocks of other nodes may arrive after this, so a rank is not called silent if it was heard
        before and is missing only from the rounds of the last seconds.
        """
        ended_ns = self._clock()
        late = set[int]()
        for round_ in self._rounds.values():
            if ended_ns - round_.begun_ns >= END_GRACE_NS:
                late |= self._roster.awaited - round_.blocks.keys()
        on_the_way = (self._roster.awaited & self._roster.last.keys()) - late
        records: list[Record] = []
        for number in sorted(self._rounds):
            records += self._finish(number)
        if not self._table.is_empty:
            records.append(self._table.take(on_the_way))
        for over in self._late.close():
            records += [over, self._straggler(over)]
        return records

    def _number(self, block: Block) -> int:
        return block.iteration // self._steps

    def _lose(self, ranks: Sequence[int], text: str, who: RankIdentity | None) -> FindingRecord:
        """Nothing more comes from these ranks, of which `who` is the first where it is known."""
        evidence = {"ranks": list(ranks), "hostname": who.hostname if who else None}
        lost = self._found("lost_rank", BEGINS, text, numbered("rank", ranks), evidence)
        self._told.lost |= dict.fromkeys(ranks, lost)
        return lost

    def _back(self, rank: int) -> list[Record]:
        """That a rank is there again, with all that were lost with it."""
        lost = self._told.lost.pop(rank, None)
        if lost is None or lost in self._told.lost.values():
            return []
        text = f"{lost.subject} {'is' if len(lost.evidence['ranks']) == 1 else 'are'} there again"
        return [self._found("lost_rank", ENDS, text, lost.subject, lost.evidence)]

    def _close_rounds(self) -> list[Record]:
        """Finishes, in their order, the rounds that are complete or have been waited for long enough."""
        records: list[Record] = []
        while self._rounds:
            number = min(self._rounds)
            blocks = self._rounds[number].blocks
            if len(blocks) < len(self._roster.awaited) or not self._roster.awaited <= blocks.keys():
                silent = self._silent_in(number)
                if not silent and len(self._rounds) <= self._max_rounds and not self._is_late(number):
                    break
                records += self._report_silent(silent)
            records += self._finish(number)
        return records

    def _is_late(self, number: int) -> bool:
        """Whether a later round began so long ago that nothing more is to be expected of this one.

        In training all ranks are within a step of one another, so that while one of them pauses, the others
        do not get a round ahead.
        """
        later = [round_.begun_ns for other, round_ in self._rounds.items() if other > number]
        return bool(later) and self._clock() - min(later) >= GRACE_NS

    def _silent_in(self, number: int) -> list[int]:
        """Ranks from which nothing has come in this round or later, though there was time for it."""
        if not self._is_late(number):
            return []
        blocks = self._rounds[number].blocks
        first = min(block.first_iteration for block in blocks.values())
        missing = [
            rank for rank in self._roster.awaited - blocks.keys() if self._roster.last.get(rank, -1) < first
        ]
        if self._clock() - self._begun_ns < START_NS:
            missing = [rank for rank in missing if rank in self._roster.last]
        return sorted(missing)

    def _report_silent(self, ranks: Sequence[int]) -> list[Record]:
        """One event for each node and each iteration after which nothing has come from some of its ranks."""
        self._roster.awaited.difference_update(ranks)
        groups: dict[tuple[int | None, str], list[int]] = defaultdict(list)
        for rank in ranks:
            hostname = self._roster.known[rank].hostname if rank in self._roster.known else ""
            groups[self._roster.last.get(rank), hostname].append(rank)
        events: list[Record] = []
        for (iteration, hostname), members in groups.items():
            who = numbered("rank", members) + (f" ({hostname})" if hostname else "")
            since = "nothing yet" if iteration is None else f"nothing after iteration {iteration}"
            text = f"{since} from {who}; others are at iteration {self._newest}"
            events.append(self._lose(members, text, self._roster.known.get(members[0])))
        return events

    def _finish(self, number: int) -> list[Record]:
        blocks = self._rounds.pop(number).blocks
        self._closed = number
        self._table.add(blocks)
        found = self._late.look(
            (self._roster.known[rank], block) for rank, block in blocks.items() if rank in self._roster.known
        )
        records: list[Record] = []
        for record in found:
            records.append(record)
            if isinstance(record, StragglerRecord):
                records.append(self._straggler(record))
        return records + self._without_phases(blocks)

    def _straggler(self, slow: StragglerRecord) -> FindingRecord:
        state = ENDS if slow.is_over else WORSENS if slow.identity in self._told.slow else BEGINS
        self._told.slow.add(slow.identity)
        evidence = {
            "first_iteration": slow.first_iteration,
            "ranks": list(slow.ranks),
            "hostname": slow.hostname,
            "phase": slow.phase,
            "excess_ms": slow.excess_ns / NS_PER_MS,
            "iteration_ms": slow.iteration_ns / NS_PER_MS,
            "cause": slow.cause,
            "observed": slow.observed,
        }
        subject = f"{numbered('rank', slow.ranks)}, {slow.phase}"
        found = self._found("straggler", state, straggler_text(slow), subject, evidence)
        found = replace(found, iteration=slow.iteration, is_logged=state != ENDS)
        return replace(found, severity=slow.excess_ns / NS_PER_MS, unit="ms")

    def _without_phases(self, blocks: Mapping[int, Block]) -> list[Record]:
        """A note, once, if the first round that has steps has no phases."""
        has_steps = any(block.steps for block in blocks.values())
        if self._is_note_done or not has_steps:
            return []
        self._is_note_done = True
        if any(block.work_ns is not None for block in blocks.values()):
            return []
        why = "without phases (--perf-breakdown) waiting cannot be separated from work"
        return [self._event("note", f"slow ranks are not named: {why}")]

    def _event(self, name: str, text: str) -> EventRecord:
        return EventRecord(name, self._clock(), self._newest, text)

    def _found(
        self, name: str, state: str, text: str, subject: str, evidence: dict[str, Any]
    ) -> FindingRecord:
        return self._stamped(FindingRecord(name, state, text, subject=subject, evidence=evidence))

    def _stamped(self, found: FindingRecord) -> FindingRecord:
        return replace(found, at_ns=self._clock(), iteration=self._newest)


def _node(hostname: str, members: Sequence[RankIdentity]) -> NodeRecord:
    return NodeRecord(
        hostname=hostname,
        ranks=[who.rank for who in members],
        pids=[who.pid for who in members],
        devices=[who.device for who in members],
        stages=[who.stage for who in members],
    )
