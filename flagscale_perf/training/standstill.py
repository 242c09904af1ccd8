"""Stretches in which a job stood still: stopped by a signal, suspended by a scheduler, a paused container.

Seen from the writer. Of a stopped trainer the system says so. Where the writer was stopped as well, a thread
that only sleeps has overslept, while no thread of the writer ran or waited for a CPU: a thread that holds
Python's lock, and waits for a CPU itself, keeps all others from waking.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.records import Record
from flagscale_perf.training.records import PhaseRecord, StandstillRecord, StepRecord
from flagscale_perf.training.window import end_mono_ns

PERIOD_NS = NS_PER_S // 20
LEAST_NS = NS_PER_S // 2  # a machine that is busy, and a debugger that looks once, keep a process for less
_TOUCHED_NS = 2 * PERIOD_NS  # of a step: less is how exactly a stretch is known
_BUSY = 0.02  # of a gap: a trainer that used more of a CPU was not stopped
_KEPT = 64
_PROC = "/proc"
_TASKS = f"{_PROC}/self/task"
_NS_PER_TICK = NS_PER_S // os.sysconf("SC_CLK_TCK")


class _Look(NamedTuple):
    """Attributes:
    at_ns: monotonic mark.
    is_stopped: the trainer is.
    busy_ns: CPU time of the trainer so far.
    active_ns: for which threads of this process have run or have waited for a CPU, so far.
    faults: for which this process had to read memory back from a disk, so far: it is slow then, not stopped.
    """

    at_ns: int
    is_stopped: bool
    busy_ns: int
    active_ns: int
    faults: int = 0


class StandstillWatch:
    """Looks at a process many times a second, on a thread of its own: only that thread can tell that
    everything stood, as any other may be held by a disk.
    """

    def __init__(self, pid: int, look: Callable[[int], _Look] | None = None) -> None:
        self._pid = pid
        self._look_at = look or _look
        self._looked = threading.Condition()
        self._last: _Look | None = None
        self._since_ns: int | None = None
        self._with_writer = False
        self._found: list[StandstillRecord] = []

    def start(self) -> None:
        """Starts the thread; without it, nothing is seen. Raises RuntimeError where none can start."""
        threading.Thread(target=self._run, name="flagscale_perf standstill", daemon=True).start()

    def take(self) -> list[StandstillRecord]:
        """The stretches that have ended since the last call, up to this moment; blocks for a few hundredths
        of a second where the thread's look is overdue.
        """
        with self._looked:
            if self._looked.wait_for(self._is_up_to_date, PERIOD_NS / NS_PER_S):
                self._look(is_own=False)
            found, self._found = self._found, []
        return found

    def _is_up_to_date(self) -> bool:
        return self._last is None or monotonic_ns() - self._last.at_ns < _TOUCHED_NS

    def _run(self) -> None:
        while self.look():
            time.sleep(PERIOD_NS / NS_PER_S)

    def look(self) -> bool:
        """Looks once, on the thread; False where the system does not say, or the process is gone."""
        with self._looked:
            self._last = self._look(is_own=True)
            self._looked.notify_all()
            return self._last is not None

    def _look(self, is_own: bool) -> _Look | None:
        try:
            now = self._look_at(self._pid)
        except (OSError, ValueError, LookupError):
            return None
        if self._last is not None:
            self._judge(self._last, now, is_own)
        return now

    def _judge(self, before: _Look, now: _Look, is_own: bool) -> None:
        gap_ns = now.at_ns - before.at_ns
        active_ns = now.active_ns - before.active_ns
        overslept_ns = gap_ns - PERIOD_NS - active_ns if active_ns >= 0 else 0  # less: a thread has ended
        was_idle = now.busy_ns - before.busy_ns <= _BUSY * gap_ns
        all_stood = is_own and overslept_ns >= LEAST_NS and was_idle and now.faults == before.faults
        if (all_stood or now.is_stopped) and self._since_ns is None:
            self._since_ns = before.at_ns + PERIOD_NS // 2
        self._with_writer |= all_stood
        if self._since_ns is None or now.is_stopped:
            return
        end_ns = now.at_ns if all_stood else now.at_ns - PERIOD_NS // 2
        if end_ns - self._since_ns >= LEAST_NS:
            stood_ns = end_ns - self._since_ns
            self._found.append(StandstillRecord(self._since_ns, stood_ns, int(self._with_writer)))
        self._since_ns, self._with_writer = None, False


def _look(pid: int) -> _Look:
    fields = _text(f"{_PROC}/{pid}/stat").rpartition(")")[2].split()
    active_ns = 0
    for thread in os.listdir(_TASKS):
        with suppress(OSError):  # it has just ended
            ran, waited, _ = _text(f"{_TASKS}/{thread}/schedstat").split()
            active_ns += int(ran) + int(waited)
    busy_ns = (int(fields[11]) + int(fields[12])) * _NS_PER_TICK
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    return _Look(monotonic_ns(), fields[0] in "Tt", busy_ns, active_ns, faults)


def _text(path: str) -> str:
    """Of a file of the kernel's, read twenty times a second: a `Path` would take several times as long."""
    with open(path, "rb", buffering=0) as file:
        return file.read().decode(errors="replace")


class Stretches:
    """The last stretches of a run, which are no time of its steps."""

    def __init__(self) -> None:
        self._known: deque[StandstillRecord] = deque(maxlen=_KEPT)

    def add(self, record: Record) -> None:
        """Takes it if it is one more."""
        if isinstance(record, StandstillRecord):
            self._known.append(record)

    def without(self, records: Iterable[Record]) -> list[Record]:
        """The records; a step in which the job stood still, without that time and left out of rates, and its
        phases not known: which of them it was in is not.
        """
        made: list[Record] = []
        for each in records:
            stood_ns = self._stood_ns(each) if self._known and isinstance(each, StepRecord) else 0
            if stood_ns >= _TOUCHED_NS and isinstance(each, StepRecord):
                each = _shorter(each, stood_ns)
                if made and isinstance(made[-1], PhaseRecord):
                    made[-1] = PhaseRecord(each.iteration, *[None] * (len(PhaseRecord._fields) - 1))
            made.append(each)
        return made

    def _stood_ns(self, step: StepRecord) -> int:
        end_ns = end_mono_ns(step)
        overlaps = (
            min(end_ns, one.start_ns + one.stood_ns) - max(step.start_ns, one.start_ns) for one in self._known
        )
        return sum(overlap for overlap in overlaps if overlap > 0)


def _shorter(step: StepRecord, stood_ns: int) -> StepRecord:
    """Evaluation and checkpoints follow the train step; of what is longer than the rest, it is a part."""
    field = max(("iteration_ns", "eval_ns", "checkpoint_ns"), key=lambda name: getattr(step, name))
    left_ns = max(0, getattr(step, field) - stood_ns)
    changed = {field: left_ns, "warmup": 1}
    if field == "iteration_ns":
        changed["train_step_ns"] = min(step.train_step_ns, left_ns)
        if step.device_ns is not None:
            changed["device_ns"] = min(step.device_ns, left_ns)
    return step._replace(**changed)
