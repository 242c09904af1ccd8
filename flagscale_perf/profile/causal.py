"""How much of a delay the step feels: a known one is planted in a module of one rank, on some steps.

A share of a step's time does not say what taking it away would gain: nothing, where it is hidden behind
another rank or behind communication. A delay does: the step's change by the delay, the slope, is 1 where
everything waits for it, and 0 where nothing does.

    experiment = Experiment(model, Delay.parse("rank=1,module=decoder.layers.0,ms=5"), rank)
    for batch in batches:  # on every rank, at least ten steps
        experiment.begin_step()
        train(batch)
        experiment.end_step()
    experiment.close()
    print(experiment.effect())  # on the delayed rank
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from flagscale_perf.profile.effect import Effect, effect_of
from flagscale_perf.profile.ranges import paths_of
from flagscale_perf.spine.clock import NS_PER_MS, monotonic_ns
from flagscale_perf.spine.errors import PerfError

_EXAMPLE = "write for example rank=1,module=decoder.layers.0,ms=5"


@dataclass(frozen=True)
class Delay:
    """What is planted.

    Attributes:
        rank: that is delayed.
        module: path of the module, before each forward pass of which it computes nothing for a while.
        delay_ns: of each of these passes.
    """

    rank: int
    module: str
    delay_ns: int

    @classmethod
    def parse(cls, text: str) -> Delay:
        """`rank=1,module=decoder.layers.0,ms=5`. Raises PerfError."""
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        if sorted(parts) != ["module", "ms", "rank"]:
            raise PerfError(f"{text!r} is no delay; {_EXAMPLE}")
        if not parts["rank"].isdigit() or not parts["module"]:
            raise PerfError(
                f"{text!r}: rank={parts['rank']} is no rank, or the module is missing; {_EXAMPLE}"
            )
        if not re.fullmatch(r"\d+(\.\d+)?", parts["ms"]) or float(parts["ms"]) <= 0:
            raise PerfError(f"{text!r}: ms={parts['ms']} is no number above 0; {_EXAMPLE}")
        return cls(int(parts["rank"]), parts["module"], round(float(parts["ms"]) * NS_PER_MS))


class Experiment:
    """Steps with the delay and steps without, in an order that all ranks share: each pair has one of each.

    Between `begin_step` and `end_step` lies a step. On the rank that is not delayed, the same calls only take
    the time. The spinning keeps the thread, as computing would.
    """

    def __init__(
        self, models: nn.Module | Sequence[nn.Module], delay: Delay, rank: int, seed: int = 0
    ) -> None:
        """Raises PerfError where this rank is the one that is delayed and has no such module."""
        self._delay, self._rank = delay, rank
        self._random = random.Random(seed)
        self._pair: list[bool] = []
        self._is_delayed, self._planted_ns, self._begin_ns = False, 0, 0
        self._steps: list[tuple[bool, int, int]] = []
        self._handle: Any = None
        if rank == delay.rank:
            modules = paths_of(models)
            if delay.module not in modules:
                known = ", ".join(list(modules)[:5])
                raise PerfError(f"the model has no module {delay.module!r}; it has {known} ...")
            self._handle = modules[delay.module].register_forward_pre_hook(self._spin)

    def begin_step(self) -> None:
        """A step begins, with the delay or without."""
        if not self._pair:
            self._pair = [True, False]
            self._random.shuffle(self._pair)
        self._is_delayed, self._planted_ns = self._pair.pop(), 0
        self._begin_ns = monotonic_ns()

    def end_step(self) -> None:
        """The step is over."""
        self._steps.append((self._is_delayed, self._planted_ns, monotonic_ns() - self._begin_ns))
        self._is_delayed = False

    def close(self) -> None:
        """Leaves the model as it was."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _spin(self, *_: object) -> None:
        if self._is_delayed:
            begin_ns = monotonic_ns()
            while (now_ns := monotonic_ns()) < begin_ns + self._delay.delay_ns:
                pass
            self._planted_ns += now_ns - begin_ns

    @property
    def steps(self) -> list[tuple[bool, int, int]]:
        """Of each: whether it was delayed, what this rank has planted in it, and its time."""
        return list(self._steps)

    def effect(self) -> Effect | None:
        """What the delayed rank's steps felt of it; None on other ranks, or with too few pairs."""
        return effect_of(self._steps) if self._rank == self._delay.rank else None
