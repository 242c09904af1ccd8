"""A session while it is recorded: the last minutes second by second, for the screen of `watch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from flagscale_perf.analysis.blocks import Block, Line, Note, Panel, Report, Section, Series
from flagscale_perf.analysis.session import Course, tone_of
from flagscale_perf.spine.clock import NS_PER_S, Anchor
from flagscale_perf.spine.records import NOT_KNOWN, RUNNING, Record, RunHeader
from flagscale_perf.spine.session import labels_of
from flagscale_perf.spine.units import duration
from flagscale_perf.store.evidence import not_known

SECONDS = 240  # that are shown
QUIET_S = 2
SecondT = TypeVar("SecondT")


@dataclass(frozen=True)
class Curve(Generic[SecondT]):
    """One panel: what a second has of it; None where it is not known."""

    title: str
    unit: str
    colour: str
    decimals: int
    value: Callable[[SecondT], float | None]


class LiveSession(Generic[SecondT]):
    """One session as far as it has been read, in bounded memory. An instrument adds what a second sums up.

    Attributes:
        nothing: what a quiet session has none of.
    """

    nothing = "nothing"

    def __init__(self, header: RunHeader, empty: Callable[[], SecondT]) -> None:
        """Raises PerfError for a header without a valid session id."""
        labels_of(header)
        self.header, self.course = header, Course()
        self._empty = empty
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self._seconds: dict[int, SecondT] = {}  # the last ones, since the session's start
        self._last_ns = header.start_mono_ns

    def add(self, record: Record) -> None:
        """Adds the next record."""
        self.course.add(record)
        self.take(record)

    def take(self, record: Record) -> None:
        """Sums up a record, as the instrument needs it."""
        raise NotImplementedError

    def second(self, end_ns: int) -> SecondT:
        """The sums of the second in which something ended; machines are read one after the other."""
        number = (end_ns - self.header.start_mono_ns) // NS_PER_S
        found = self._seconds.setdefault(number, self._empty())
        if len(self._seconds) > SECONDS:
            del self._seconds[min(self._seconds)]
        return found

    def lived(self, end_ns: int) -> None:
        """Notes that something ended then: the session is not quiet."""
        self._last_ns = max(self._last_ns, end_ns)

    @property
    def counted(self) -> dict[str, int]:
        """How many of what so far, by the name that JSON has for it."""
        raise NotImplementedError

    def head(self) -> tuple[str, str]:
        """Title and the line below it."""
        raise NotImplementedError

    def blocks(self) -> list[Block]:
        """The blocks of the screen."""
        raise NotImplementedError

    def report(self, has_writer: bool | None, now_wall_ns: int) -> Report:
        """The content of the screen."""
        state, (title, about) = self.course.state(has_writer), self.head()
        return Report(
            title=title,
            facts=[Note(about), *self._quiet(state, now_wall_ns)],
            sections=[Section("live", "", "", self.blocks())],
            content=self,
            state=state,
            tone=tone_of(state),
        )

    def as_dict(self) -> dict[str, Any]:
        """As data ready for JSON."""
        return {"session": self.header.session_id} | self.counted

    def before(self) -> str:
        """A one-line summary, shown when a newer session follows."""
        name, count = next(iter(self.counted.items()))
        return f"before: session {self.header.session_id}, {count:,} {name}"

    def _quiet(self, state: str, now_wall_ns: int) -> list[Note]:
        last_ns = self._anchor.wall_of(self._last_ns)
        if state == NOT_KNOWN:
            return [Note(not_known(last_ns, now_wall_ns), "warn")]
        quiet_s = (now_wall_ns - last_ns) / NS_PER_S
        is_quiet = state == RUNNING and quiet_s >= QUIET_S
        return [Note(f"{self.nothing} for {duration(quiet_s)}", "warn")] * is_quiet

    def series(self, name: str, curves: Sequence[Curve[SecondT]]) -> Series:
        """Second by second; an incomplete second is only shown if it is the only one."""
        seconds = sorted(self._seconds.items())
        if len(seconds) > 1 and not self.course.is_over:
            seconds.pop()
        x = [second for second, _ in seconds]
        panels = []
        for curve in curves:
            line = Line(curve.title, x, [curve.value(each) for _, each in seconds], curve.colour)
            panels.append(Panel(curve.title, curve.unit, [line], decimals=curve.decimals))
        return Series(name, f"last {len(x)} seconds with {name}", panels, "second", None)
