"""Rates over a session's settled steps, which follow its start."""

from __future__ import annotations

from dataclasses import dataclass

from flagscale_perf.spine.units import as_ms, as_s
from flagscale_perf.training.phases import StepPhases, Waits
from flagscale_perf.training.records import StepRecord
from flagscale_perf.training.settled import Settling, Start, is_judged
from flagscale_perf.training.usual import UsualSteps
from flagscale_perf.training.utilisation import Scale
from flagscale_perf.training.window import StepSums


@dataclass(frozen=True)
class SettledSummary:
    """The settled steps; `training.settled` says how they are found. Figures as in `Statistics`.

    Attributes:
        first_iteration: the first settled one; None where there is none, and then `reason` says why.
        start_steps: that the start has after the first one; None where it is not known, like the following.
        start_s: their time.
        excess_s: what they took longer than usual ones.
        usual_ms: a usual step.
    """

    first_iteration: int | None
    reason: str | None
    start_steps: int | None
    start_s: float | None
    excess_s: float | None
    usual_ms: float | None
    avg_tflops_per_gpu: float | None
    avg_throughput_tokens: float | None
    avg_throughput_samples: float | None
    avg_mfu: float | None
    avg_hfu: float | None
    avg_iteration_ms: float | None
    p50_iteration_ms: float | None
    p95_iteration_ms: float | None

    @property
    def has_slow_start(self) -> bool:
        """Whether steps after the first one belong to the start, so that settled figures are others."""
        return bool(self.start_steps)


NOT_SETTLED = SettledSummary(None, "no steps", *[None] * 12)


class SettledTotals:
    """Folds steps. As long as the start may still change its steps are kept, at most `settled.HORIZON`."""

    def __init__(self, scale: Scale) -> None:
        """`scale`: of the run's devices."""
        self._scale = scale
        self._settling = Settling()
        self._held: list[tuple[StepRecord, StepPhases | None]] = []
        self._sums: StepSums | None = None

    def add(self, step: StepRecord, phases: StepPhases | None) -> None:
        """The next step, with its phases if measured."""
        if not is_judged(step):
            return
        if self._settling.is_final:
            if self._sums is not None:
                self._sums.add(step, phases)
            return
        self._settling.add(step)
        self._held.append((step, phases))
        self._sums = None
        if self._settling.is_final:
            self._after_start()
            self._held = []

    @property
    def is_final(self) -> bool:
        """Whether no step changes the start."""
        return self._settling.is_final

    def add_usual(self, steps: UsualSteps, waits: Waits) -> None:
        """The next steps, once the start is final."""
        if self._sums is not None:
            self._sums.add_usual(steps, waits)

    def sums(self, all_: StepSums) -> StepSums | None:
        """Over the settled steps; None where the session has not settled. `all_`: over all but the first,
        which they are where there is no slow start.
        """
        start = self._settling.result()
        if start.settled_iteration is None:
            return None
        return self._after_start() if start.is_slow else all_

    def _after_start(self) -> StepSums | None:
        start = self._settling.result()
        if self._sums is None and start.is_slow:
            self._sums = StepSums()
            for step, phases in self._held[start.steps :]:
                self._sums.add(step, phases)
        return self._sums

    def result(self, all_: StepSums, is_trusted: bool) -> SettledSummary:
        """So far; `all_` as for `sums`. `is_trusted`: no interval is suspect; else there is no MFU and no
        HFU.
        """
        start, sums = self._settling.result(), self.sums(all_)
        return _summary(start, StepSums() if sums is None else sums, self._scale, is_trusted)


def _summary(start: Start, sums: StepSums, scale: Scale, is_trusted: bool) -> SettledSummary:
    rates = sums.rates(scale) if is_trusted else sums.rates(scale)._replace(mfu=None, hfu=None)
    has_settled = start.settled_iteration is not None
    return SettledSummary(
        first_iteration=start.settled_iteration,
        reason=start.reason,
        start_steps=start.steps if has_settled else None,
        start_s=as_s(start.dur_ns if has_settled else None),
        excess_s=as_s(start.excess_ns if has_settled else None),
        usual_ms=as_ms(start.usual_ns),
        **rates.in_summary(),
    )
