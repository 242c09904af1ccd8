"""Names late ranks while the training lasts, by the rule of the ledger over its last steps."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from flagscale_perf.spine.averages import median
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.units import numbered, stretch
from flagscale_perf.training.clocks import capped_by, caps_in, is_lower
from flagscale_perf.training.ledger.book import Unit, book_of, filled, lateness_of, rows_of
from flagscale_perf.training.ledger.division import Division
from flagscale_perf.training.ledger.ledger import cause_of
from flagscale_perf.training.ledger.naming import FEWEST, LIVE, Late, steady_units
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rank_records import CutsRecord, StragglerRecord
from flagscale_perf.training.ranks.blocks import Block, RankIdentity
from flagscale_perf.training.ranks.rows import MAX_SHOWN, MachineCuts, records_of
from flagscale_perf.training.samples import Reservoir

SUSPECT_STEPS = 3  # among the latest in so many of the last steps: its rows are kept from now on
WORSE = 2.0  # times what was told: worth a word again
OVER = 0.5  # of the least lateness: a rank at the limit does not come and go

_CAUSES = {"work": "as it has more work", "speed": "at equal work", "both": "in part as it has more work"}

Seen = Mapping[int, tuple[RankIdentity, Block]]


class _Slow(NamedTuple):
    """A slow stretch under way: as it was found, with its last slow iteration, and what it took longer."""

    record: StragglerRecord
    excess_ns: Reservoir


class _Stage:
    """The recent steps of one stage.

    Attributes:
        window: its last steps.
        slow: stretches under way, by unit and phase.
    """

    def __init__(self, least: float, work_flops: Mapping[str, float] | None) -> None:
        self._least, self._work_flops = least, work_flops
        self.window: deque[CutsRecord] = deque(maxlen=FEWEST.count)
        self.slow: dict[tuple[Unit, int], _Slow] = {}

    def suspects(self, seen: Seen) -> set[int]:
        counts = Counter(unit[0] for record in self.window for unit, *_ in rows_of(record) if unit)
        again = [rank for rank, steps in counts.items() if steps >= SUSPECT_STEPS and rank in seen]
        return {seen[rank][0].lockstep for rank in again}

    def look(self, seen: Seen) -> list[StragglerRecord]:
        """Looks at new steps; returns stretches that begin with them and those that are over."""
        book = book_of(list(self.window), self._work_flops)
        if book is None or len(book.steps) < FEWEST.count:
            return []
        lateness, step_ns = lateness_of(book), median(step.dur_ns for step in book.steps)
        found = {
            (book.units[one.unit], one.phase): one
            for one in steady_units(book, lateness, step_ns, self._least)
        }
        iteration, records = book.steps[-1].iteration, []
        for key, slow in list(self.slow.items()):
            if key[0] not in book.units:
                continue
            place = book.units.index(key[0]), key[1]
            beyond_ns = median(filled(lateness.beyond_ns.get(place, {}), len(book.steps)))
            if key not in found and beyond_ns < OVER * self._least * step_ns:
                records.append(_over(self.slow.pop(key)))
                continue
            slow.excess_ns.add(round(beyond_ns))
            self.slow[key] = slow._replace(record=replace(slow.record, iteration=iteration))
            if beyond_ns >= WORSE * slow.record.excess_ns:
                worse = replace(
                    self.slow[key].record, excess_ns=round(beyond_ns), iteration_ns=round(step_ns)
                )
                self.slow[key] = self.slow[key]._replace(record=worse)
                records.append(worse)
        for key, late in found.items():
            if key not in self.slow and key[0][0] in seen:
                span = book.steps[0].iteration, iteration
                part = Division(book, lateness).part(late.place, late.at)
                cause = None if part is None else cause_of(part.share, part.least, part.most)
                slow = _slow(key[0], late, span, round(step_ns), seen)
                self.slow[key] = slow._replace(record=replace(slow.record, cause=cause))
                records.append(self.slow[key].record)
        return records

    def close(self) -> list[StragglerRecord]:
        slow, self.slow = self.slow, {}
        return list(map(_over, slow.values()))


class LateRanks:
    """Looks at the blocks of all ranks round by round. What it keeps of a rank does not grow with the run."""

    def __init__(self, least: float = LIVE.value, work_flops: Mapping[str, float] | None = None) -> None:
        """`least`: share of a step from which a rank is late; `work_flops`: as in `RunFacts`."""
        self._stages: dict[int, _Stage] = defaultdict(lambda: _Stage(least, work_flops))

    def look(self, pairs: Iterable[tuple[RankIdentity, Block]]) -> list[CutsRecord | StragglerRecord]:
        """The blocks of one round: their cuts side by side, and who is late from now on or no more. A machine
        sends the cuts of all its stages with one block, of a rank of any stage.
        """
        stages: dict[int, dict[int, tuple[RankIdentity, Block]]] = defaultdict(dict)
        cuts: list[MachineCuts] = []
        for who, block in sorted(pairs, key=lambda pair: pair[0].rank):
            stages[who.stage][who.rank] = who, block
            cuts += block.cuts
        records: list[CutsRecord | StragglerRecord] = []
        for number, seen in sorted(stages.items()):
            stage = self._stages[number]
            machines = [each for each in cuts if each.stage == number]
            made = records_of(number, machines, _units(seen), stage.suspects(seen)) if machines else []
            stage.window.extend(made)
            records += made
            if made:
                records += stage.look(seen)
        return records

    def close(self) -> list[StragglerRecord]:
        """The run is over, and with it every stretch."""
        return [record for stage in self._stages.values() for record in stage.close()]


def _units(seen: Seen) -> dict[int, tuple[int, ...]]:
    units: dict[int, list[int]] = defaultdict(list)
    for rank in sorted(seen):
        units[seen[rank][0].lockstep].append(rank)
    return {lockstep: tuple(ranks) for lockstep, ranks in units.items()}


def _over(slow: _Slow) -> StragglerRecord:
    excess_ns = slow.excess_ns.quantile(0.5) or slow.record.excess_ns
    return replace(slow.record, is_over=True, excess_ns=excess_ns)


def _slow(unit: Unit, late: Late, span: tuple[int, int], step_ns: int, seen: Seen) -> _Slow:
    who, _ = seen[unit[0]]
    blocks = [seen[rank][1] for rank in unit if rank in seen]
    record = StragglerRecord(
        first_iteration=span[0],
        iteration=span[1],
        is_over=False,
        ranks=list(unit[:MAX_SHOWN]),
        hostname=who.hostname,
        device=who.device,
        stage=who.stage,
        phase=PHASES[late.phase],
        excess_ns=late.usual_ns,
        iteration_ns=step_ns,
        against="peers",
        cause=None,
        observed=observed_of(blocks, median_clock(block for _, block in seen.values())),
    )
    excess_ns = Reservoir()
    excess_ns.add(late.usual_ns)
    return _Slow(record, excess_ns)


def median_clock(blocks: Iterable[Block]) -> float | None:
    """Median of the blocks' lowest clocks, in MHz; None without a reading."""
    clocks = [block.sm_clock_mhz for block in blocks if block.sm_clock_mhz is not None]
    return median(clocks) if clocks else None


def observed_of(blocks: Sequence[Block], usual_mhz: float | None) -> str | None:
    """Whether the device's clock was low in these blocks: by a cap, or just lower; None if it was not."""
    clock_mhz = median_clock(blocks)
    throttle = ", ".join(block.throttle for block in blocks if block.throttle)
    caps = caps_in(throttle, clock_mhz, usual_mhz)
    if caps:
        return capped_by(caps)
    if is_lower(clock_mhz, usual_mhz):
        return f"clock at {clock_mhz:.0f} MHz instead of {usual_mhz:.0f} MHz"
    return None


def straggler_text(straggler: StragglerRecord) -> str:
    """One line on what was found when the straggler was named."""
    steps = stretch("step", straggler.first_iteration, straggler.iteration)
    ranks, excess, phase = numbered("rank", straggler.ranks), _ms(straggler.excess_ns), straggler.phase
    slower = round(100 * straggler.excess_ns / max(straggler.iteration_ns - straggler.excess_ns, 1))
    one = len(straggler.ranks) == 1
    who = f"{ranks} ({straggler.hostname}, {straggler.device})"
    longer = f"{'takes' if one else 'take'} {excess} longer in {phase} than {'its' if one else 'their'} peers"
    return f"{steps} took {slower} % longer: {who} {longer}{words_of(straggler)}"


def words_of(straggler: StragglerRecord) -> str:
    """Behind what is said of a slow rank: its cause, where one is known, and what was observed beside it."""
    cause = _CAUSES.get(straggler.cause or "", straggler.cause)
    observed = f"; observed: {straggler.observed}" if straggler.observed else ""
    return f"{f', {cause}' if cause else ''}{observed}"


def _ms(dur_ns: int) -> str:
    dur_ms = dur_ns / NS_PER_MS
    return f"{dur_ms:.0f} ms" if dur_ms >= 10 else f"{dur_ms:.1f} ms"
