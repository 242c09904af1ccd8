"""Captured steps of a training, asked what changes of them gain."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from functools import cached_property

from flagscale_perf.analysis.replays import Change, Doubt, PathTimes, Prediction, Replays, engine, together
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.averages import median
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.training.analysis.nearby import drift_of
from flagscale_perf.training.analysis.replayed import NAMES, StageGains, stage_gains
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import PHASES


class Asked:
    """Captured steps that can be replayed.

    Attributes:
        replays: these.
        path: the critical path of all of them.
    """

    def __init__(self, replays: Replays, doubt: Doubt) -> None:
        """`doubt`: what else is known of predictions."""
        self.replays, self._doubt = replays, doubt
        self.path: PathTimes = together(replays.paths())
        self._known: dict[str, Prediction | None] = {}

    @property
    def steps(self) -> str:
        """Which they are, in words."""
        return f"{self.path.steps} captured steps"

    def changes(self, words: str) -> list[Change]:
        """The changes that words mean. Raises PerfError for words that mean nothing."""
        found = engine()
        assert found is not None
        return found.changes([words], NAMES)

    def predict(self, words: str) -> Prediction | None:
        """What changes make of them; None for one that is impossible, or that takes other records."""
        if words not in self._known:
            self._known[words] = None
            with contextlib.suppress(PerfError):
                self._known[words] = self.replays.predict(self.changes(words), self._doubt)
        return self._known[words]

    @cached_property
    def stage_gains(self) -> StageGains | None:
        """What evenly divided stages gain; None where that is not known."""
        return stage_gains(self.replays, self.path)

    def share(self, *phases: str) -> float:
        """The share of these steps that a mean rank spends in phases, except waiting for others."""
        numbers = set(map(PHASES.index, phases))
        ranks = len(self.path.stages)
        own_ns = sum(
            ns if rank is None else ns / ranks
            for (rank, phase), ns in self.path.own_ns.items()
            if phase in numbers
        )
        return own_ns / max(1, self.path.total_ns)

    def longer_ns(self, ranks: Collection[int], phase: str) -> float:
        """By how much these ranks usually take longer in a phase than the others of their stages."""
        gains = self.replays.gains(ranks, PHASES.index(phase))
        return median([gain.longer_ns for gain in gains]) if gains else 0.0


def doubt_of(session: Session) -> Doubt:
    """What is known of predictions for a session, by those of runs in its directory."""
    drift = drift_of(session, RunFacts.of(session.header.facts))
    try:
        found = engine()
    except ImportError:  # numpy
        found = None
    return Doubt(*drift) if found is None else found.doubt(session.path.parent, drift)
