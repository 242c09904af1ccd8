"""Weights & Biases, through the run that the host has begun, if it has one in rank 0's process.

The sink sends a row's figures to the trainer's process, whose side thread hands them to the host's run. The
package wandb is never imported here, and no run is begun or ended.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

from flagscale_perf.sinks.base import SinkContext
from flagscale_perf.spine.figures import Rows
from flagscale_perf.spine.records import Record

GROUP = "flagscale_perf"


class WandbSink:
    """Sends each row's figures to the trainer's process; asked for by `perf_wandb`."""

    name: ClassVar[str] = "W&B"
    cost: ClassVar[str] = "no figures of the monitor in the host's run; everything else goes on"
    rebuilds: ClassVar[bool] = False

    def __init__(self, context: SinkContext) -> None:
        self._rows = Rows(context.presentation.table, context.header)
        self._emit = context.emit_figures
        self._waiting: list[dict[str, float]] = []

    @classmethod
    def open(cls, context: SinkContext) -> WandbSink | None:
        """Only with the option."""
        return cls(context) if context.options.perf_wandb else None

    def write(self, record: Record) -> None:
        """Keeps a row's figures, its step first; unknown ones are left out."""
        if self._rows.is_row(record):
            step = self._rows.table.step
            figures = {step: getattr(record, step)} | self._rows.curves(record)
            self._waiting.append({f"{GROUP}/{name}": each for name, each in figures.items()})

    def flush(self) -> None:
        """Hands the figures over, each row once."""
        waiting, self._waiting = self._waiting, []
        for figures in waiting:
            self._emit(figures)

    def close(self) -> None:
        """Does nothing: the run is the host's."""


class HostRun:
    """The host's run, in the trainer's process. Called on a side thread only."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` prints a line about trouble."""
        self._say = say
        self._run: Any = None
        self._has_said_missing = False
        self._is_broken = False

    def log(self, figures: dict[str, float]) -> None:
        """Adds a row's figures to the run, its step first; says once why it cannot."""
        if not self._is_broken:
            try:
                self._log(figures)
            except Exception as error:  # the host's package is not ours to trust
                self._is_broken = True
                self._say(f"flagscale_perf: W&B: {type(error).__name__}: {error}; no more figures there")

    def _log(self, figures: dict[str, float]) -> None:
        run = getattr(sys.modules.get("wandb"), "run", None)
        if run is None:
            if not self._has_said_missing:
                self._has_said_missing = True
                self._say(
                    "flagscale_perf: W&B: the host has no run in rank 0's process (Megatron's is on "
                    "the last rank); no figures there"
                )
            return
        if run is not self._run:
            self._run = run
            step = next(iter(figures))
            run.define_metric(step, hidden=True)
            run.define_metric(f"{GROUP}/*", step_metric=step)
        # Not committed: the figures join the host's next row, whose step stays the host's own.
        run.log(figures, commit=False)
