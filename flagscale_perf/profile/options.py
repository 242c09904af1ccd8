"""What is profiled and where the result goes; the same from a command line, a call and the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.options.table import to_environment
from flagscale_perf.options.values import Steps, parse_ranks

__all__ = ["ProfileOptions", "Steps", "options_of", "parse_ranks"]

DEFAULT_DIRECTORY = "logs/profile"
PREFIX = "FLAGSCALE_PERF_PROFILE"
MAX_EVENTS = 2_000_000  # of one window


@dataclass(frozen=True)
class ProfileOptions:
    """What is profiled.

    Attributes:
        steps: of these; None: nothing.
        directory: of the run file, absolute.
        job: what the ranks of one job have in common; "" where nobody has said it: then it is the directory.
        ranks: which ones, as `0,2-3`; "" for all.
        clean: clean steps beside each profiled one, to see what profiling costs.
        shapes: one more step with shapes, for FLOPs and bytes.
        memory: allocations are recorded.
        max_events: of a window. A step that would make more is not profiled; what a single step has more is
            dropped and counted.
    """

    steps: Steps | None
    directory: Path
    job: str = ""
    ranks: str = ""
    clean: int = 1
    shapes: bool = True
    memory: bool = True
    max_events: int = MAX_EVENTS

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
        config = PerfConfig(
            perf_profile_steps=None if self.steps is None else str(self.steps),
            perf_profile_ranks=self.ranks or None,
            perf_profile_clean=self.clean,
            perf_profile_shapes=self.shapes,
            perf_profile_memory=self.memory,
        )
        own = {f"{PREFIX}_DIR": str(self.directory), f"{PREFIX}_JOB": self.job}
        return own | {name: text for name, text in to_environment(config).items() if name.startswith(PREFIX)}

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> ProfileOptions:
        """Raises PerfError for an invalid value."""
        config = PerfConfig.from_args({}, environment)
        directory = environment.get(f"{PREFIX}_DIR") or DEFAULT_DIRECTORY
        return options_of(replace(config, perf_log_dir=directory), environment.get(f"{PREFIX}_JOB", ""))


def options_of(config: PerfConfig, job: str = "") -> ProfileOptions:
    """The profile options among the monitor's, with the run file beside its own. `job`: as the attribute."""
    return ProfileOptions(
        steps=None if config.perf_profile_steps is None else Steps.parse(config.perf_profile_steps),
        directory=Path(config.perf_log_dir).absolute(),
        job=job,
        ranks=config.perf_profile_ranks or "",
        clean=config.perf_profile_clean,
        shapes=config.perf_profile_shapes,
        memory=config.perf_profile_memory,
    )
