"""Which step is profiled, which is left clean, and when a window is over."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from flagscale_perf.profile.options import ProfileOptions, Steps
from flagscale_perf.spine.errors import PerfError


class Kind(Enum):
    """What is done with a step."""

    IGNORED = 0
    CLEAN = 1  # only its time is taken
    PROFILED = 2
    DETAILED = 3  # with shapes and memory, for which its time does not count


@dataclass(frozen=True)
class Schedule:
    """A window: each profiled step with its clean ones after it, and a last one with shapes and memory.

    Attributes:
        steps: the first one of a window, how many are profiled, and when the next window begins.
        clean: behind each profiled step.
        has_detail: whether there is a last one with shapes and memory.
    """

    steps: Steps
    clean: int
    has_detail: bool

    @classmethod
    def of(cls, options: ProfileOptions) -> Schedule | None:
        """None if nothing is profiled. Raises PerfError if one window would run into the next."""
        if options.steps is None:
            return None
        schedule = cls(options.steps, options.clean, options.shapes or options.memory)
        every = options.steps.every
        if every is not None and every < schedule.length:
            raise PerfError(
                f"steps {options.steps}: with {options.clean} clean steps beside each profiled one"
                f"{' and one with shapes and memory' if schedule.has_detail else ''} a window is"
                f" {schedule.length} steps long; write /{schedule.length} or more, or fewer clean steps"
            )
        return schedule

    @property
    def profiled(self) -> int:
        """Number of profiled steps in a window."""
        return self.steps.last - self.steps.first + 1

    @property
    def length(self) -> int:
        """Steps from a window's first to its last."""
        return self.profiled * (1 + self.clean) + int(self.has_detail)

    def position(self, iteration: int) -> int | None:
        """The step's index in its window, from 0, or past its end; None before the first window."""
        since = iteration - self.steps.first
        if since < 0:
            return None
        return since if self.steps.every is None else since % self.steps.every

    def kind(self, position: int) -> Kind:
        """What is done with the step at this position of a window."""
        if position < self.profiled * (1 + self.clean):
            return Kind.CLEAN if position % (1 + self.clean) else Kind.PROFILED
        return Kind.DETAILED if self.has_detail and position == self.length - 1 else Kind.IGNORED
