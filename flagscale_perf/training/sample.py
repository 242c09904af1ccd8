"""Steps of a run with their phases, as many as memory is to hold."""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

from flagscale_perf.training.records import PhaseRecord, StepRecord


class Step(NamedTuple):
    """A step as far as it is kept. `phases_ns`: in the order of `training.phases.PHASES`; None if not
    measured.
    """

    iteration: int
    iteration_ns: int
    samples: int
    tokens: int
    model_flops: int | None
    phases_ns: tuple[int | None, ...] | None

    @classmethod
    def of(cls, step: StepRecord, phases: PhaseRecord | None) -> Step:
        """Makes it from its records; `phases`: None if not measured."""
        phases_ns = None if phases is None else phases[1:]
        return cls(step.iteration, step.iteration_ns, step.samples, step.tokens, step.model_flops, phases_ns)


class Numbered(Protocol):
    """Anything that belongs to one step."""

    @property
    def iteration(self) -> int:
        """Number of the iteration."""


NumberedT = TypeVar("NumberedT", bound=Numbered)


class Sample(Generic[NumberedT]):
    """Steps of a run: all of them up to a limit, then every second, fourth ... stretch of iterations.

    Which stretches stay follows from the iterations' numbers, so that two runs keep the same ones.

    Attributes:
        steps: those kept, by iteration.
        thinned: how many are not.
    """

    def __init__(self, limit: int, stretch: int) -> None:
        """Keeps at most `limit` steps, in runs of `stretch` neighbours."""
        self.steps: dict[int, NumberedT] = {}
        self.thinned = 0
        self._limit, self._stretch = limit, stretch
        self._every = 1

    def add(self, step: NumberedT) -> None:
        """Takes the next step; it may be thinned out at once, or others for it."""
        if not self.keeps(step.iteration):
            self.thinned += 1
            return
        self.steps[step.iteration] = step
        while len(self.steps) > self._limit:
            self._every *= 2
            kept = {iteration: one for iteration, one in self.steps.items() if self.keeps(iteration)}
            self.thinned += len(self.steps) - len(kept)
            self.steps = kept

    def drop_before(self, iteration: int) -> int:
        """Forgets the steps before that one; returns how many there were."""
        count = len(self.steps)
        self.steps = {number: step for number, step in self.steps.items() if number >= iteration}
        return count - len(self.steps)

    def keeps_none(self, first: int, last: int) -> bool:
        """Whether no step from one number to another would be kept at present."""
        stretches = range(first // self._stretch, last // self._stretch + 1)
        return all(stretch % self._every for stretch in stretches)

    def keeps(self, iteration: int) -> bool:
        """Whether a step of that number would be kept at present."""
        return iteration // self._stretch % self._every == 0
