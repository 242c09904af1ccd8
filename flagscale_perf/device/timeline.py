"""The marks of successive train steps (see `device.marks`), on the host's clock or a device's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from flagscale_perf.device.marks import END, kind_of, time_of
from flagscale_perf.spine import hot
from flagscale_perf.spine.clock import monotonic_ns

MAX_MARKS = 20_000  # of one step; a host that makes more is caught in a loop

NOTHING_NAMED = "the host named no phase in a train step"
CAPTURING = "a train step was captured into a CUDA graph, where events hold no time"
TOO_MANY = f"a train step had more than {MAX_MARKS} marks"


class Timeline(Protocol):
    """Takes the marks of one step after the other.

    Attributes:
        trouble: why the last step could not be measured; "" if it could.
        cost_ns: what the marks of the last step have taken of this thread.
    """

    trouble: str
    cost_ns: int

    @property
    def mark(self) -> Callable[[int], None]:
        """Takes the next mark. An attribute, so that it can be a method of a container: it is called for
        every phase.
        """

    def begin(self, now_ns: int) -> None:
        """Begins a train step at this monotonic mark; anything left of the previous one is dropped."""

    def under_way(self) -> Sequence[int]:
        """The marks so far of the step that is under way, by the host's clock; for any thread."""

    def end(self, now_ns: int) -> Any:
        """Ends the step at this monotonic mark. Returns what `read` takes; None if it was not measured."""

    def read(self, taken: Any) -> Sequence[int] | None:
        """The marks of a finished step; None while the device has not reached its end."""


class HostTimeline:
    """Uses the host's clock: on the CPU the work is done when the call returns."""

    def __init__(self, mark_ns: int) -> None:
        """`mark_ns`: time that one mark takes on this thread."""
        self.trouble = ""
        self.cost_ns = 0
        self._mark_ns = mark_ns
        self._marks = hot.new_marks(MAX_MARKS + 1)
        self.mark: Callable[[int], None] = self._marks.add

    def begin(self, now_ns: int) -> None:
        """Begins a step; marks since the last one are dropped."""
        self._marks.clear()

    def under_way(self) -> tuple[int, ...]:
        """The marks so far."""
        return self._marks.take()

    def end(self, now_ns: int) -> tuple[int, ...] | None:
        """Ends the step."""
        marks = self._marks.take()
        count = len(marks)
        self.cost_ns = count * self._mark_ns
        self.trouble = "" if 0 < count <= MAX_MARKS else TOO_MANY if count else NOTHING_NAMED
        return None if self.trouble else marks

    # The same marks, and no call of ours for them: the host's clock leaves nothing to wait for.
    read: ClassVar[type[tuple[int, ...]]] = tuple


class _Taken(NamedTuple):
    """A step's events: `events[0]` at its start, `events[i + 1]` at `marks[i]`."""

    start_ns: int
    marks: list[int]
    events: list[Any]


class CudaTimeline:
    """Uses the device's clock: for each mark, an event from a pool on the current stream."""

    def __init__(self, cuda: Any, mark_ns: int) -> None:
        """`cuda`: `torch.cuda`, initialised by the host; `mark_ns`: time of a mark without its event."""
        self.trouble = ""
        self.cost_ns = 0
        self._cuda = cuda
        self._mark_ns = mark_ns
        self._free: list[Any] = []
        self._open = _Taken(0, [], [])

    def begin(self, now_ns: int) -> None:
        """Records the step's first event."""
        self.trouble = ""
        self.cost_ns = 0
        self._free += self._open.events  # of a step that did not end
        self._open = _Taken(now_ns, [], [])
        self._record()

    def mark(self, mark: int) -> None:
        """Records an event."""
        if not self.trouble:
            self._open.marks.append(mark)
            self._record()
        self.cost_ns += monotonic_ns() - time_of(mark) + self._mark_ns

    def under_way(self) -> tuple[int, ...]:
        """The marks so far, as the host took them."""
        return tuple(self._open.marks)

    def end(self, now_ns: int) -> _Taken | None:
        """Records the step's last event."""
        taken, is_named = self._open, bool(self._open.marks)
        if not self.trouble:
            taken.marks.append(END)
            self._record()
        self._open = _Taken(0, [], [])
        if not is_named:
            self.trouble = self.trouble or NOTHING_NAMED
        if self.trouble:
            self._free += taken.events
            return None
        return taken

    def read(self, taken: _Taken) -> list[int] | None:
        """Reads all events once the device has passed the last one, and returns them to the pool."""
        events = taken.events
        if not events[-1].query():
            return None
        at_ns, marks = taken.start_ns, []
        for mark, before, after in zip(taken.marks, events, events[1:], strict=False):
            at_ns += round(before.elapsed_time(after) * 1e6)
            marks.append(at_ns + kind_of(mark))
        self._free += events
        return marks

    def _record(self) -> None:
        events = self._open.events
        if self._cuda.is_current_stream_capturing():
            self.trouble = CAPTURING
        elif len(events) >= MAX_MARKS:
            self.trouble = TOO_MANY
        else:
            event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
            event.record()
            events.append(event)
