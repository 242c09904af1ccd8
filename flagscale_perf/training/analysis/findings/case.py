"""The case that a training's rules look into, and findings of three kinds with their cost and gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flagscale_perf.analysis.rules import Case, Change, Evidence, Finding, Rule
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.spine.averages import median
from flagscale_perf.spine.limits import Limit
from flagscale_perf.training.analysis.asked import Asked
from flagscale_perf.training.analysis.findings.anatomy import Anatomy
from flagscale_perf.training.analysis.findings.own_names import in_own_names, of_one_batch, value_of
from flagscale_perf.training.analysis.findings.signals import Signals
from flagscale_perf.training.analysis.report import TrainingReport
from flagscale_perf.training.analysis.tables import RankEntry
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.ledger.ledger import Ledger

FASTER = "tokens/s"
MS_PER_S = 1000
ARITHMETIC = "arithmetic"  # of shares: what others would wait for then is not in it
SOONER = "tokens in the same time"
MIN_STEPS = Limit(20, "", "ours: fewer steps than this are noise")
SPARE_MEMORY = Limit(
    0.6, "share", "ours: of the device at peak; what recomputation or a small batch saves has to fit in"
)
EXCHANGES = ("exposed_grad_comm", "exposed_param_comm")
_ALIKE = 2.0  # times
CPU_WAIT = Limit(
    0.3, "share", "measured: of a step, beside a process that never rests (benchmarks/slow_training)"
)
MAX_SHARE = 0.99  # several troubles at once may seem to take more than there is


def alike(captured: float, run: float) -> bool:
    """Whether captured steps have as much of something as the run; else they are of another time."""
    return run / _ALIKE <= captured <= run * _ALIKE


@dataclass(frozen=True)
class TrainingCase(Case):
    """A run to look into.

    Attributes:
        report: without findings.
        signals: beyond its tables.
        steps, rated_s: how many steps rates are made of, and their time.
        anatomy: steps taken apart.
        asked: captured steps; None where there are none that can be replayed.
        facts: of the run, with the host's arguments where the file has them.
        options: of the monitor, in force.
    """

    report: TrainingReport
    signals: Signals
    steps: int
    rated_s: float
    anatomy: Anatomy = field(default_factory=lambda: Anatomy([]))
    asked: Asked | None = field(default=None, kw_only=True)
    facts: RunFacts = field(default_factory=lambda: RunFacts.of({}), kw_only=True)
    options: PerfConfig = field(default_factory=PerfConfig, kw_only=True)

    @property
    def knows_arguments(self) -> bool:
        """Whether the file has what the host was started with."""
        return self.facts.arguments is not None

    def argument(self, name: str) -> Any:
        """The value of the host's argument, such as "manual_gc"; None where it is unset or not known."""
        return value_of(name, self.facts)

    def number(self, name: str) -> float | None:
        """The same where it is a number."""
        value = self.argument(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def shows(self, share: float, *phases: str, part: float = 1.0) -> bool:
        """Whether captured steps, if there are any, spend about that share in this part of these phases."""
        return self.asked is None or alike(part * self.asked.share(*phases), share)

    def of_host(self, change: Change) -> Change | None:
        """In the settings of the run's host, see `own_names`."""
        return in_own_names(of_one_batch(change, self.facts), self.facts)

    @property
    def entries(self) -> list[RankEntry]:
        """The ranks side by side; none where nothing was recorded of them."""
        return [] if self.report.ranks is None else self.report.ranks.entries

    @property
    def is_on_cpu(self) -> bool:
        """Whether the run's devices are CPUs."""
        return self.facts.is_on_cpu

    @property
    def can_judge_speed(self) -> bool:
        """Whether there are enough steps."""
        return self.steps >= MIN_STEPS.value

    def share_of_steps(self, dur_s: float | None) -> float | None:
        """`dur_s` as a share of the steps' time; None if either is unknown."""
        return None if dur_s is None or self.rated_s <= 0 else dur_s / self.rated_s

    def mean_step_ms(self) -> float | None:
        """Mean time of the steps that rates are computed from; None without any."""
        return self.rated_s / self.steps * MS_PER_S if self.steps else None

    def part(self, name: str) -> float:
        """Seconds of a class of goodput; zero where they are not known."""
        return next(part for part in self.report.goodput.parts if part.name == name).dur_s or 0.0

    def share_of_wall(self, dur_s: float) -> float:
        """`dur_s` as a share of the session's time; 0 where none has passed."""
        wall_s = self.report.goodput.wall_s
        return dur_s / wall_s if wall_s > 0 else 0.0

    def phase_share(self, *names: str) -> float:
        """Share of the iterations' time that these phases take together; 0 where they were not measured. No
        more than in a usual step: without what single steps or late ranks take longer.
        """
        if not self.anatomy.iteration_ns:
            return 0.0
        usual_ns = sum(map(self.anatomy.usual_ns, names))
        return min(sum(map(self._mean_share, names)), usual_ns / self.anatomy.iteration_ns)

    def exchange_share(self) -> float:
        """Share of the steps' time that exchanges of gradients and parameters take: the ledger's row, without
        waiting for late ranks; rank 0's phases where there is no ledger.
        """
        first = self._first_stage
        if first is None:
            return self.phase_share(*EXCHANGES)
        return first.share(sum(first.exchange_ns.get(name, 0) for name in EXCHANGES))

    def _mean_share(self, name: str) -> float:
        """Mean share of a phase: what all ranks of the first stage have in common, or else rank 0's."""
        first = self._first_stage
        if first is None:
            return sum(row.share or 0.0 for row in self.report.phases.rows if row.name == name)
        return first.share(first.base_ns.get(name, 0) + first.exchange_ns.get(name, 0))

    @property
    def _first_stage(self) -> Ledger | None:
        ledgers = self.report.ledgers
        return ledgers[0] if ledgers and ledgers[0].stage == 0 else None

    def host_share(self, ranks: Sequence[int] = (), *, beyond_others: bool = False) -> float:
        """Share of the steps' time that findings lay to hosts; where ranks are named, no more than these wait
        for theirs; `beyond_others`: for a CPU, no more than they wait longer than the other ranks.
        """
        return sum(
            min([self.share_of_steps(finding.cost_s) or 0.0, *self._waits(finding, ranks, beyond_others)])
            for finding in self.explained_by
            if finding.name.startswith("host_")
            and (not ranks or not finding.ranks or not set(ranks).isdisjoint(finding.ranks))
        )

    def _waits(self, finding: Finding, ranks: Sequence[int], beyond_others: bool) -> list[float]:
        """The longest of these ranks' waits for what a host is short of; none where it is not known."""
        own: list[float] = []
        others: list[float] = []
        of_memory = finding.name == "host_short_of_memory"
        for entry in self.entries:
            share = entry.memory_wait_share if of_memory else entry.cpu_wait_share
            if share is not None:
                is_own = not set(ranks).isdisjoint(entry.ranks)
                (own if is_own else others).append(share)
        if not own:
            return []
        # The ranks of a machine wait for memory together: none waits beyond its neighbours.
        is_beyond = beyond_others and others and not of_memory
        return [max(0.0, max(own) - median(others)) if is_beyond else max(own)]

    def unknown_host_share(self) -> float:
        """Share of the steps' time that ranks whose devices are CPUs may have waited for one, where nothing
        tells: what all of them take in a phase may be that. 0 where it is known.
        """
        shares = (entry.cpu_wait_share for entry in self.entries)
        is_known = self.signals.host.host_ns or any(share is not None for share in shares)
        return CPU_WAIT.value if self.is_on_cpu and not is_known else 0.0

    def is_on_one_host(self) -> bool:
        """Whether no other host has a rank, so that this one cannot be left out."""
        if self.report.ranks is None:
            return self.facts.world_size == 1
        hosts = {entry.hostname for entry in self.entries}
        return len(hosts) == 1 and None not in hosts

    def has_spare_memory(self) -> bool:
        """Whether the device's memory is known to have room."""
        share = self.report.memory.peak_share
        return share is not None and share < SPARE_MEMORY.value


TrainingRule = Rule[TrainingCase]


def slows(
    rule: TrainingRule, case: TrainingCase, title: str, share: float, evidence: list[Evidence]
) -> Finding:
    """A finding that takes this share of the steps' time."""
    share = min(share, MAX_SHARE)
    cost_s, wall_s = share * case.rated_s, case.report.goodput.wall_s
    return replace(
        rule.finding(title, evidence, FASTER),
        cost_s=cost_s,
        cost_share=cost_s / wall_s if wall_s else None,
        gain=share / (1 - share),
        gain_from=ARITHMETIC,
        cost_of_steps=share,
    )


def interrupts(
    rule: TrainingRule, case: TrainingCase, title: str, evidence: list[Evidence], dur_s: float
) -> Finding:
    """A finding that takes so much time in which less was trained than could be."""
    share = min(case.share_of_wall(dur_s), MAX_SHARE)
    return replace(
        rule.finding(title, evidence, SOONER), cost_s=dur_s, cost_share=share, gain=share / (1 - share)
    )


def warns(rule: TrainingRule, title: str, evidence: list[Evidence]) -> Finding:
    """A risk or a doubt."""
    return rule.finding(title, evidence, FASTER)
