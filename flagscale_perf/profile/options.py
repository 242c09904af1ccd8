"""Options of profiling; the same from a command line, a call and the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.options.table import to_environment
from flagscale_perf.options.values import Steps, parse_ranks
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import given_path, local_path

__all__ = ["ProfileOptions", "Steps", "options_of", "parse_ranks"]

DEFAULT_DIRECTORY = "logs/profile"
PREFIX = "FLAGSCALE_PERF_PROFILE"
# rows of `PerfConfig`, whose names begin with perf_profile_ there
_ROWS = ("steps", "ranks", "clean", "shapes", "memory")
MAX_EVENTS = 2_000_000  # of one window


@dataclass(frozen=True)
class ProfileOptions:
    """Options of profiling.

    Attributes:
        steps: the steps to profile; None for none.
        directory: where the run file goes; made absolute.
        job: identifies the job of these ranks; "" if the directory does.
        ranks: the ranks to profile, as `0,2-3`; "" for all.
        clean: clean steps beside each profiled one, to see what profiling costs.
        shapes: one more step with shapes, for FLOPs and bytes.
        memory: allocations are recorded.
        max_events: the most events of a window. A step that would make more is not profiled; events of a
            single step beyond that are dropped and counted.
    """

    steps: Steps | None
    directory: Path
    job: str = ""
    ranks: str = ""
    clean: int = 1
    shapes: bool = True
    memory: bool = True
    max_events: int = MAX_EVENTS

    def __post_init__(self) -> None:
        """Raises PerfError for a directory that is no path."""
        object.__setattr__(self, "directory", given_path(self.directory, "directory"))

    @property
    def is_on(self) -> bool:
        """Whether anything is profiled."""
        return self.steps is not None

    def wants(self, rank: int) -> bool:
        """Whether this rank is profiled."""
        return not self.ranks or rank in parse_ranks(self.ranks)

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that give another process the same options."""
        config = PerfConfig(**{f"perf_profile_{name}": getattr(self, name) for name in _ROWS})
        own = {f"{PREFIX}_DIR": str(self.directory), f"{PREFIX}_JOB": self.job}
        return own | {name: text for name, text in to_environment(config).items() if name.startswith(PREFIX)}

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> ProfileOptions:
        """Raises PerfError for an invalid value."""
        config = PerfConfig.from_args({}, environment)
        directory = local_path(environment.get(f"{PREFIX}_DIR") or DEFAULT_DIRECTORY)
        return options_of(replace(config, perf_log_dir=directory), environment.get(f"{PREFIX}_JOB", ""))


def options_of(config: PerfConfig, job: str = "") -> ProfileOptions:
    """The profile options among the monitor's, with the run file beside its own. `job`: as the attribute."""
    given = {name: getattr(config, f"perf_profile_{name}") for name in _ROWS}
    given["steps"] = None if given["steps"] is None else Steps.parse(given["steps"])
    given["ranks"] = given["ranks"] or ""
    return ProfileOptions(directory=Path(config.perf_log_dir).absolute(), job=job, **given)


class Kind(Enum):
    """How a step is treated."""

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
        """How the step at this position of a window is treated."""
        if position < self.profiled * (1 + self.clean):
            return Kind.CLEAN if position % (1 + self.clean) else Kind.PROFILED
        return Kind.DETAILED if self.has_detail and position == self.length - 1 else Kind.IGNORED
