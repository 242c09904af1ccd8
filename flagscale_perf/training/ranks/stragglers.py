"""Names the ranks that make the others wait. docs/metrics.md, "Ranks", says what is compared with what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.rank_records import StragglerRecord
from flagscale_perf.training.ranks.against_past import AgainstPast
from flagscale_perf.training.ranks.against_peers import AgainstPeers
from flagscale_perf.training.ranks.against_stages import AgainstStages
from flagscale_perf.training.ranks.blocks import Block, RankIdentity
from flagscale_perf.training.ranks.rounds import Round, Seen, round_of
from flagscale_perf.training.ranks.stretches import SlowStretch, Stage
from flagscale_perf.training.ranks.work import work_of


class Stragglers:
    """Looks at the blocks of all ranks round by round. What it keeps of a rank does not grow with the run."""

    def __init__(self, facts: RunFacts) -> None:
        """`facts` of the run."""
        self._peers = AgainstPeers(is_lockstep_wider=(facts.expert_parallel or 1) > 1)
        self._pasts: dict[int, AgainstPast] = defaultdict(AgainstPast)
        self._split = AgainstStages()
        self._stages: dict[int, Stage] = defaultdict(Stage)
        self._heavy: SlowStretch | None = None

    def look(self, pairs: Iterable[tuple[RankIdentity, Block]]) -> list[StragglerRecord]:
        """The blocks of one round; what begins with them and what is over."""
        by_stage: dict[int, list[Seen]] = defaultdict(list)
        for who, block in pairs:
            work = work_of(block)
            if work is not None and work.own_ns > 0:
                by_stage[who.stage].append(Seen(who, block, work))
        records: list[StragglerRecord] = []
        for number, seen in sorted(by_stage.items()):
            stage = self._stages[number]
            stage.rounds.append(round_of(seen))
            records += self._peers.look(stage)
            records += self._pasts[number].look(stage)
        return records + self._look_at_split({number: self._stages[number].rounds[-1] for number in by_stage})

    def close(self) -> list[StragglerRecord]:
        """The run is over, and with it every stretch."""
        records: list[StragglerRecord] = []
        for number, stage in self._stages.items():
            records += [stretch.over() for stretch in stage.slow] + self._pasts[number].close()
        return records if self._heavy is None else [*records, self._heavy.over()]

    def _look_at_split(self, rounds: Mapping[int, Round]) -> list[StragglerRecord]:
        """An uneven split stays as it is, so it is reported once and lasts until the end."""
        found = self._split.look(rounds) if self._heavy is None else None
        if found is None:
            return []
        number, heavier = found
        self._heavy = self._stages[number].opened(heavier)
        return [self._heavy.record]
