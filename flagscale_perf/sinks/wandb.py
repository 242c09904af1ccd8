"""Weights & Biases, through the run that the host has begun, if it has one in rank 0's process.

The sink sends a row's figures to the trainer's process, whose side thread hands them to the host's run. The
package wandb is never imported here, and no run is begun or ended.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from flagscale_perf.sinks.base import Sink, SinkContext
from flagscale_perf.spine.figures import Rows
from flagscale_perf.spine.records import Record

GROUP = "flagscale_perf"
MAX_WAITING = 1000  # rows of figures, while the host logs nothing


class WandbSink(Sink):
    """Sends each row's figures to the trainer's process; asked for by `perf_wandb`."""

    name: ClassVar[str] = "W&B"
    cost: ClassVar[str] = "no figures of the monitor in the host's run; everything else goes on"
    option: ClassVar[str | None] = "perf_wandb"

    def __init__(self, context: SinkContext) -> None:
        self._rows = Rows(context.presentation.table, context.header)
        self._emit = context.emit_figures
        self._waiting: list[dict[str, float]] = []

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


class HostRun:
    """The host's run, in the trainer's process. Called on a side thread only, but for `finish`.

    Its rows are the host's: one more shifts the step of every later row that the host gives none, and W&B
    drops a row whose step is behind. So figures join a row of the host, one interval a row. Where the host
    gives its rows iterations as steps, those that it leaves out are free for rows of figures. What still
    waits when the host finishes the run gets rows behind its last one.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` prints a line about trouble."""
        self._say = say
        self._run: Any = None
        self._has_said_missing = False
        self._is_broken = False
        self._lock = threading.RLock()
        self._waiting: deque[dict[str, float]] = deque()
        self._joined: int | None = None  # the step of the host's row that has figures already
        self._seen = (0.0, 0)  # the last interval's iteration, and the run's step after it
        self._was_silent = self._has_steps = False
        self._dropped = 0

    def log(self, figures: dict[str, float]) -> None:
        """Adds a row's figures to the run, its step first, now or later; says once why it cannot."""
        self._guard(lambda: self._log(figures))

    def _guard(self, call: Callable[[], None]) -> None:
        if not self._is_broken:
            try:
                with self._lock:
                    call()
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
        step, iteration = next(iter(figures.items()))
        if run is not self._run:
            self._run, self._joined, self._was_silent, self._has_steps = run, None, False, False
            run.define_metric(step, hidden=True)
            run.define_metric(f"{GROUP}/*", step_metric=step)
            self._watch_end(run)
        if getattr(getattr(run, "settings", None), "mode", None) == "shared":
            run.log(figures)  # a row of many writers: the server counts them, and the run has no step to read
            return
        self._waiting.append(figures)
        if len(self._waiting) > MAX_WAITING:
            self._waiting.popleft()
            self._dropped += 1
        row = run.step
        self._look(iteration, row)
        while self._waiting and self._has_steps and row < iteration:
            run.log({} if row == self._joined else self._waiting.popleft(), commit=True)
            row += 1
        if self._waiting and row != self._joined:
            run.log(self._waiting.popleft(), commit=False)
            self._joined = row
        self._seen = (iteration, row)

    def _look(self, iteration: float, row: int) -> None:
        """Whether steps are iterations: after an interval without one, there is one of this interval."""
        before, row_before = self._seen
        if row != row_before:
            self._has_steps = self._was_silent and before < row <= iteration
        self._was_silent = row == row_before

    def _watch_end(self, run: Any) -> None:
        """Before the host finishes the run, what waits is added; also where a `with` block finishes it."""
        name = "_finish" if hasattr(run, "_finish") else "finish"
        finish, own = getattr(run, name), vars(run).get(name)

        def with_the_rest(*args: Any, **options: Any) -> Any:
            if vars(run).get(name) is with_the_rest:  # else somebody has put theirs around it
                delattr(run, name) if own is None else setattr(run, name, own)
            self._guard(lambda: self._add_rest(run))
            return finish(*args, **options)

        setattr(run, name, with_the_rest)

    def _add_rest(self, run: Any) -> None:
        if self._waiting and run.step == self._joined:
            run.log({}, commit=True)  # the row that they may not join is over
        while self._waiting:
            run.log(self._waiting.popleft(), commit=True)
        if self._dropped:
            self._say(
                f"flagscale_perf: W&B: {self._dropped} intervals are not there: the host logged so seldom "
                f"that more than {MAX_WAITING:,} waited; the run file has them"
            )
            self._dropped = 0
