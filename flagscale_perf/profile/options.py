"""What is profiled, and where it goes; the same from a command line, a call and the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flagscale_perf.spine.errors import PerfError

DEFAULT_DIRECTORY = "logs/profile"
PREFIX = "FLAGSCALE_PERF_PROFILE"
MAX_EVENTS = 2_000_000  # of one window: some 200 bytes each until they are rows
_STEPS = re.compile(r"(\d+)(?:-(\d+))?(?:/(\d+))?")
_ON, _OFF = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


@dataclass(frozen=True)
class Steps:
    """Which steps are profiled: from `first` to `last`, and the same many again after every `every`.

    Attributes:
        first, last: as the host counts them, both included.
        every: steps from one window's first to the next one's; None: there is one window.
    """

    first: int
    last: int
    every: int | None = None

    @classmethod
    def parse(cls, text: str) -> Steps:
        """`20`, `20-22` or `20-22/100`. Raises PerfError for anything else."""
        match = _STEPS.fullmatch(text.strip())
        if match is None:
            raise PerfError(f"{text!r} are no steps; write for example 20-22, or 20-22/100 for every 100")
        first, last, every = int(match[1]), int(match[2] or match[1]), int(match[3]) if match[3] else None
        if first < 1 or last < first:
            raise PerfError(f"{text!r} are no steps: the first is 1 and the last is not before the first")
        if every is not None and every <= last - first:
            raise PerfError(
                f"{text!r}: a window of {last - first + 1} steps cannot begin every {every} steps"
            )
        return cls(first, last, every)

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" + (f"/{self.every}" if self.every else "")


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
        events: each event is kept, too, in a file of its own.
        max_events: of a window; what is more is dropped and counted.
    """

    steps: Steps | None
    directory: Path
    job: str = ""
    ranks: str = ""
    clean: int = 1
    shapes: bool = True
    memory: bool = True
    events: bool = False
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
        """The environment that says the same to another process."""
        return {
            f"{PREFIX}_STEPS": "" if self.steps is None else str(self.steps),
            f"{PREFIX}_DIR": str(self.directory),
            f"{PREFIX}_JOB": self.job,
            f"{PREFIX}_RANKS": self.ranks,
            f"{PREFIX}_CLEAN": str(self.clean),
            f"{PREFIX}_SHAPES": str(int(self.shapes)),
            f"{PREFIX}_MEMORY": str(int(self.memory)),
            f"{PREFIX}_EVENTS": str(int(self.events)),
        }

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> ProfileOptions:
        """Raises PerfError for a value that cannot be meant."""
        steps, clean = environment.get(f"{PREFIX}_STEPS", ""), environment.get(f"{PREFIX}_CLEAN", "1")
        ranks = environment.get(f"{PREFIX}_RANKS", "")
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
            events=_flag(environment, "EVENTS", False),
        )


def parse_ranks(text: str) -> frozenset[int]:
    """Of `0,2-3`: 0, 2 and 3. Raises PerfError."""
    found: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise PerfError(f"{text!r} are no ranks; write for example 0,2-3")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


def _flag(environment: Mapping[str, str], name: str, default: bool) -> bool:
    value = environment.get(f"{PREFIX}_{name}", str(int(default))).strip().lower()
    if value not in _ON + _OFF:
        raise PerfError(
            f"{PREFIX}_{name}={environment[f'{PREFIX}_{name}']!r} is neither on nor off; write 1 or 0"
        )
    return value in _ON
