"""What the monitor may take of the training's time, and when what was switched off for it is tried again.

Time by the wall clock is also what others take of a processor that is shared. So it only raises a suspicion:
the verdict is by the processor time of the training thread, in the steps that follow. Steps of a cold start
are behind by then.
"""

from __future__ import annotations

from typing import NamedTuple

# What the monitor may take of a step that has phases, whatever share of the step that is.
PHASES_NS = 200_000
FIRST_REST = 10  # times the steps that are judged together; twice as long each time


class Overrun(NamedTuple):
    """The monitor's cost where it is too high.

    Attributes:
        step_ns: what it takes of a step.
        share: the same as a share of the step's time.
    """

    step_ns: int
    share: float


class Budget:
    """The monitor's allowed share of the training's time, judged over a fixed number of steps at a time.

    The median step is judged: one in which the system runs another process, or Python collects garbage, says
    nothing about the monitor.

    Args:
        max_share: of the time, of 1.
        steps: how many are judged together.

    Attributes:
        weighs: the next steps are judged by processor time.
    """

    def __init__(self, max_share: float, steps: int) -> None:
        self.steps = steps
        self.max_share = max_share
        self.weighs = False
        self._judgements = 0
        self._rests: dict[str, int] = {}  # of each part that was ever switched off, in judgements
        self._due: dict[str, int] = {}  # of each that is

    def judge(self, steps: list[tuple[int, int]], has_phases: bool) -> Overrun | None:
        """`steps`: what the monitor took of each, and how long it was. None if that is within the budget, or
        not yet certain.
        """
        self._judgements += 1
        is_certain, self.weighs = self.weighs, False
        step_ns = sorted(taken_ns for taken_ns, _ in steps)[len(steps) // 2]
        mean_ns = sum(iteration_ns for _, iteration_ns in steps) / len(steps)
        allowed_ns = self.max_share * mean_ns
        if has_phases:
            allowed_ns = max(allowed_ns, PHASES_NS)
        if step_ns > allowed_ns and is_certain:
            return Overrun(step_ns, step_ns / mean_ns)
        self.weighs = step_ns > allowed_ns
        return None

    def said(self, verdict: Overrun | str | None, part: str | None) -> str:
        """One line on a verdict: on the part that it is, or on `part`, which was switched off for it; ""
        where there is nothing to say.
        """
        if isinstance(verdict, str):
            return self.switched_on(verdict)
        return self.switched_off(part, verdict) if verdict and part else ""

    def switched_off(self, part: str, overrun: Overrun) -> str:
        """One line on this part, which is switched off for a while now."""
        self._rests[part] = 2 * self._rests[part] if part in self._rests else FIRST_REST
        self._due[part] = self._judgements + self._rests[part]
        cost = f"{overrun.step_ns / 1e3:.0f} us a step, {overrun.share * 100:.2g} % of the time"
        least = f" (for phases at least {PHASES_NS // 1000} us a step)" if part == "phases" else ""
        limit = f"more than --perf-max-overhead {100 * self.max_share:g}{least} allows"
        again = f"it is tried again in {self._rests[part] * self.steps} steps"
        return f"{part} switched off: the monitor takes {cost}, {limit}; {again}"

    def switched_on(self, part: str) -> str:
        """One line on this part, which is tried again."""
        steps = self._rests[part] * self.steps
        return f"{part} switched on again after {steps} steps, to see what the monitor takes now"

    def rested(self) -> str | None:
        """A part that is to be tried again now, however little time there was without it: phases bring an
        allowance of their own.
        """
        for part, due in self._due.items():
            if self._judgements >= due:
                self.weighs = False
                del self._due[part]
                return part
        return None
