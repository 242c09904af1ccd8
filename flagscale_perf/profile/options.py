"""What is profiled and where the result goes; the same from a command line, a call and the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.spine.delays import Delays
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.steps import Steps, parse_ranks

__all__ = ["ProfileOptions", "Steps", "options_of", "parse_ranks"]

DEFAULT_DIRECTORY = "logs/profile"
PREFIX = "FLAGSCALE_PERF_PROFILE"
MAX_EVENTS = 2_000_000  # of one window
_ON, _OFF = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


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
        causal: delays that are planted in training steps behind the only window; None: none.
    """

    steps: Steps | None
    directory: Path
    job: str = ""
    ranks: str = ""
    clean: int = 1
    shapes: bool = True
    memory: bool = True
    max_events: int = MAX_EVENTS
    causal: Delays | None = None

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
        return {
            f"{PREFIX}_STEPS": "" if self.steps is None else str(self.steps),
            f"{PREFIX}_DIR": str(self.directory),
            f"{PREFIX}_JOB": self.job,
            f"{PREFIX}_RANKS": self.ranks,
            f"{PREFIX}_CLEAN": str(self.clean),
            f"{PREFIX}_SHAPES": str(int(self.shapes)),
            f"{PREFIX}_MEMORY": str(int(self.memory)),
            f"{PREFIX}_CAUSAL": "" if self.causal is None else str(self.causal),
        }

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> ProfileOptions:
        """Raises PerfError for an invalid value."""
        steps, clean = environment.get(f"{PREFIX}_STEPS", ""), environment.get(f"{PREFIX}_CLEAN", "1")
        ranks = environment.get(f"{PREFIX}_RANKS", "")
        causal = environment.get(f"{PREFIX}_CAUSAL", "")
        parse_ranks(ranks)
        if not clean.isdigit():
            raise PerfError(f"{PREFIX}_CLEAN={clean!r} is not a whole number; write for example 1")
        return cls(
            steps=Steps.parse(steps) if steps else None,
            directory=Path(environment.get(f"{PREFIX}_DIR") or DEFAULT_DIRECTORY).absolute(),
            job=environment.get(f"{PREFIX}_JOB", ""),
            ranks=ranks,
            clean=int(clean),
            shapes=_flag(environment, "SHAPES", True),
            memory=_flag(environment, "MEMORY", True),
            causal=Delays.parse(causal) if causal else None,
        )


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
        causal=None if config.perf_profile_causal is None else Delays.parse(config.perf_profile_causal),
    )


def _flag(environment: Mapping[str, str], name: str, default: bool) -> bool:
    value = environment.get(f"{PREFIX}_{name}", str(int(default))).strip().lower()
    if value not in _ON + _OFF:
        raise PerfError(
            f"{PREFIX}_{name}={environment[f'{PREFIX}_{name}']!r} is neither on nor off; write 1 or 0"
        )
    return value in _ON
