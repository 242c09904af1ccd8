"""A run of threads and processes that wait for one another, as the engine that predicts changes of it takes
it: what is the same for every instrument that records such runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from flagscale_perf.analysis.compare.compare import NOISE
from flagscale_perf.analysis.flows import Flow, Made, Outcomes
from flagscale_perf.analysis.predictions import Change, Check, Doubt, Offer, Prediction, offered
from flagscale_perf.analysis.replays import Engine, Predicts, engine
from flagscale_perf.analysis.timeline import Drawn
from flagscale_perf.spine.errors import PerfError

_NO_DOUBT, _NO_OPERATORS = Doubt(), dict[str, Mapping[int, float]]()
_MOST = 10  # offers
OwnT = TypeVar("OwnT", bound="ChangeableFlow")


class ChangeableFlow(ABC):
    """One such run, which predicts itself; the `Replayable` of its instrument.

    Attributes:
        checks: what may be changed besides durations.
        of, perfect: what a prediction is of, and its ceiling.
    """

    checks: Mapping[str, Check] | None
    of: str
    perfect: str

    @property
    @abstractmethod
    def phases(self) -> Mapping[str, tuple[int, ...]]:
        """Names that changes may use, each with the numbers of its phases."""

    @property
    @abstractmethod
    def flow(self) -> Flow:
        """What was recorded. Raises MissingRecordError where nothing can be replayed."""

    @abstractmethod
    def outcomes(self, found: Engine, base: Made, told: Sequence[Change]) -> Outcomes:
        """What the changes besides those of durations make of it. Raises MissingRecordError, PerfError."""

    @abstractmethod
    def tried(self) -> Iterable[Change]:
        """What may be worth a try."""

    @abstractmethod
    def flag_of(self, change: Change) -> str:
        """The host's own option for that change; "" where there is none."""

    def replays(self: OwnT) -> OwnT:
        """Itself. Raises MissingRecordError where nothing can be replayed."""
        _ = self.flow
        return self

    def predict(
        self,
        changes: Sequence[Change],
        doubt: Doubt = _NO_DOUBT,
        beside: Sequence[Predicts] = (),
        operators: Mapping[str, Mapping[int, float]] = _NO_OPERATORS,
    ) -> Prediction:
        """What a prediction is of, after these changes. Raises MissingRecordError, PerfError for what is
        impossible.
        """
        del operators
        if beside:
            raise PerfError("--with is for runs of a training, which this is not; leave it out")
        found = self.engine()
        return found.predict(self.flow, changes, self.made(found, changes), doubt)

    def made(self, found: Engine, changes: Sequence[Change]) -> Outcomes:
        """What the changes make of it: those of durations come first."""
        base, told = found.made_of(self.flow), list[Change]()
        for change in changes:
            if change.name in (self.checks or ()):
                told.append(change)
            else:
                base = found.resized(self.flow, base, change, self.phases)
        return self.outcomes(found, base, told)

    @staticmethod
    def engine() -> Engine:
        """The engine. Raises PerfError where its room is not there."""
        found = engine()
        if found is None:
            raise PerfError("what-if needs the room `whatif` of flagscale_perf, which is not installed here")
        return found

    def drift(self) -> tuple[float, str]:
        """What `compare` assumes between two runs."""
        return NOISE, "assumed for runs on a machine that others use, too"

    def shape(self, changes: Sequence[Change]) -> Mapping[str, object]:
        """Nothing: which calls and samples there are is the application's own."""
        del changes
        return {}

    def items(self, changes: Sequence[Change]) -> Iterable[Drawn]:
        """None: only steps of a training are drawn."""
        raise PerfError(f"--trace draws steps of a training, and none with {changes[0].text!r}")

    def best(self, doubt: Doubt) -> Sequence[Offer]:
        """The changes that gain the most, the best first."""
        found = [one for change in self.tried() if (one := self._offer(change, doubt)) and one.gain > 0]
        return sorted(found, key=lambda one: -one.gain)[:_MOST]

    def _offer(self, change: Change, doubt: Doubt) -> Offer | None:
        try:
            return offered(self.predict([change], doubt), self.flag_of(change))
        except PerfError:  # what has no answer here is no advice
            return None
