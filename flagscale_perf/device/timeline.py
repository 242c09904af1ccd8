"""The train step as a line of marks: the time between two marks belongs to the innermost phase that is open between them.

So the phases of a step add up to the step, whatever the host names and however it nests the names. Phases are numbers, the
places in `core.phases.PHASES`. Nothing here waits for a device.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from flagscale_perf.core.clock import monotonic_ns
from flagscale_perf.core.phases import OTHER, PHASES

MAX_MARKS = 20_000  # of one step; more are no phases but a host in a loop

NOTHING_NAMED = "the host named no phase in a train step"
CAPTURING = "a train step was captured into a CUDA graph, where events tell no time"
TOO_MANY = f"a train step had more than {MAX_MARKS} marks"


class Timeline(Protocol):
    """Marks of one step after the other.

    Attributes:
        trouble: why the last step could not be measured; "" if it could.
        cost_ns: what `start` and `stop` have taken of this thread since `begin`.
    """

    trouble: str
    cost_ns: int

    def begin(self, now_ns: int) -> None:
        """A train step begins, at this monotonic mark; whatever the one before has left open is forgotten."""

    def start(self, phase: int) -> None:
        """A phase begins now."""

    def stop(self, phase: int) -> None:
        """It ends now, and with it what the host has left open inside; one that is not open is ignored."""

    def end(self, now_ns: int) -> Any:
        """The train step ends, at this monotonic mark. Returns what `read` takes; None if the step could not be measured."""

    def read(self, taken: Any) -> list[int] | None:
        """Nanoseconds of each phase of a step that has ended; None while the device has not got there."""


class HostTimeline:
    """By the host's clock: for the CPU, where the work is done when the call returns."""

    __slots__ = ("trouble", "cost_ns", "_stack", "_own_ns", "_begin_ns", "_last_ns")

    def __init__(self) -> None:
        self.trouble = ""
        self.cost_ns = 0
        self._stack = [OTHER]
        self._own_ns = [0] * len(PHASES)
        self._begin_ns = self._last_ns = 0

    def begin(self, now_ns: int) -> None:
        """Begins a step."""
        self._stack = [OTHER]
        self._own_ns = [0] * len(PHASES)
        self._begin_ns = self._last_ns = now_ns
        self.cost_ns = 0

    def start(self, phase: int) -> None:
        """Begins a phase."""
        now_ns = monotonic_ns()
        stack = self._stack
        self._own_ns[stack[-1]] += now_ns - self._last_ns
        self._last_ns = now_ns
        stack.append(phase)
        self.cost_ns += monotonic_ns() - now_ns

    def stop(self, phase: int) -> None:
        """Ends a phase."""
        now_ns = monotonic_ns()
        stack = self._stack
        self._own_ns[stack[-1]] += now_ns - self._last_ns
        self._last_ns = now_ns
        if stack[-1] == phase:
            stack.pop()
        else:
            _close(stack, phase)
        self.cost_ns += monotonic_ns() - now_ns

    def end(self, now_ns: int) -> list[int] | None:
        """Ends the step."""
        self._own_ns[self._stack[-1]] += now_ns - self._last_ns
        is_named = self._own_ns[OTHER] != now_ns - self._begin_ns
        self.trouble = "" if is_named else NOTHING_NAMED
        return self._own_ns if is_named else None

    def read(self, taken: list[int]) -> list[int]:
        """Known at once."""
        return taken


class _Marks(NamedTuple):
    """One event more than owners: `owners[i]` has the time from `events[i]` to `events[i + 1]`."""

    events: list[Any]
    owners: list[int]


class CudaTimeline:
    """By the device's clock: an event of a pool for each mark, on the stream that is current then."""

    def __init__(self, cuda: Any) -> None:
        """Args: cuda: the module `torch.cuda`, already initialised by the host."""
        self.trouble = ""
        self.cost_ns = 0
        self._cuda = cuda
        self._free: list[Any] = []
        self._stack = [OTHER]
        self._marks = _Marks([], [])

    def begin(self, now_ns: int) -> None:
        """Records the step's first event."""
        self.trouble = ""
        self.cost_ns = 0
        self._free += self._marks.events  # of a step that did not end
        self._stack = [OTHER]
        self._marks = _Marks([], [])
        self._mark()

    def start(self, phase: int) -> None:
        """Records an event."""
        now_ns = monotonic_ns()
        self._marks.owners.append(self._stack[-1])
        self._stack.append(phase)
        self._mark()
        self.cost_ns += monotonic_ns() - now_ns

    def stop(self, phase: int) -> None:
        """Records an event."""
        now_ns = monotonic_ns()
        self._marks.owners.append(self._stack[-1])
        _close(self._stack, phase)
        self._mark()
        self.cost_ns += monotonic_ns() - now_ns

    def end(self, now_ns: int) -> _Marks | None:
        """Records the step's last event."""
        if not self._marks.owners:
            self.trouble = self.trouble or NOTHING_NAMED
        self._marks.owners.append(self._stack[-1])
        self._mark()
        marks, self._marks = self._marks, _Marks([], [])
        if self.trouble:
            self._free += marks.events
            return None
        return marks

    def read(self, taken: _Marks) -> list[int] | None:
        """Reads all the events if the device has passed the last one, and takes them back."""
        events = taken.events
        if not events[-1].query():
            return None
        own_ns = [0] * len(PHASES)
        for owner, before, after in zip(taken.owners, events, events[1:], strict=False):
            own_ns[owner] += round(before.elapsed_time(after) * 1e6)
        self._free += events
        return own_ns

    def _mark(self) -> None:
        if self.trouble:
            return
        events = self._marks.events
        if self._cuda.is_current_stream_capturing():
            self.trouble = CAPTURING
        elif len(events) >= MAX_MARKS:
            self.trouble = TOO_MANY
        else:
            event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
            event.record()
            events.append(event)


def _close(stack: list[int], phase: int) -> None:
    """Takes the innermost open one of this phase off, and what is open inside it."""
    if phase in stack:
        while stack.pop() != phase:
            pass
