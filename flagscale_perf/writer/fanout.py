"""Several sinks as one; none of them can hold up another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from flagscale_perf.sinks.base import Sink, SinkContext
from flagscale_perf.spine.packages import find_part, how_missing
from flagscale_perf.spine.records import Record

# called with "failure" or "note", and one line
Report = Callable[[str, str], None]
MAX_VAIN = 40  # flushes in a row from the first on: a sink that failed so often is not waited for at the end


@dataclass
class _Member:
    """A sink, and how it is.

    Attributes:
        vain: its flushes, as long as none has worked.
        error: of the last flush; None if that worked.
        is_reported: the failure under way has been reported.
    """

    sink: Sink
    vain: int = 0
    has_worked: bool = False
    error: Exception | None = None
    is_reported: bool = False


class FanOut:
    """Hands records to every sink; reports once what fails, and when it works again."""

    def __init__(self, kinds: Sequence[type[Sink]], context: SinkContext, report: Report) -> None:
        self._report = report
        self._reported: set[tuple[str, str]] = set()
        self._members: list[_Member] = []
        self._incomplete: dict[str, Exception] = {}  # sinks that have left something out for good
        for kind in kinds:
            self._open(kind, context)

    def write(self, records: Iterable[Record]) -> None:
        """Hands the records to every sink."""
        batch = list(records)
        for member in self._members:
            self._write(member.sink, batch)

    def rebuild(self, record: Record) -> None:
        """Hands a record of the session's earlier process to the sinks that need it again."""
        for member in self._members:
            if member.sink.rebuilds:
                self._write(member.sink, [record])

    def flush(self) -> bool:
        """Flushes every sink. False while one fails that may still recover."""
        return all([self._flush(member) for member in self._members])

    def report_unfinished(self) -> bool:
        """Reports each sink that fails now and whose failure is not reported yet; whether there is any."""
        silent = [member for member in self._members if member.error is not None and not member.is_reported]
        for member in silent:
            member.is_reported = True
            self._report("failure", describe(type(member.sink), member.error))
        return bool(silent)

    def troubles(self) -> dict[str, Exception]:
        """The error of each sink whose output is incomplete now, by the sink's name."""
        failing = {member.sink.name: member.error for member in self._members if member.error is not None}
        return self._incomplete | failing

    def close(self) -> None:
        """Closes every sink: a network file system may report only then that it is full."""
        for member in self._members:
            try:
                member.sink.close()
            except Exception as error:  # a bug in one sink must not leave the others open
                self._lose(type(member.sink), error)

    def _open(self, kind: type[Sink], context: SinkContext) -> None:
        try:
            sink = kind.open(context)
        except Exception as error:  # also of an optional package's import; the other sinks go on
            self._lose(kind, error)
            return
        if sink is not None:
            self._members.append(_Member(sink))

    def _write(self, sink: Sink, batch: list[Record]) -> None:
        for record in batch:
            try:
                sink.write(record)
            except Exception as error:  # a bug in one sink must not cost the others their records
                self._lose(type(sink), error)

    def _flush(self, member: _Member) -> bool:
        try:
            member.sink.flush()
        except Exception as error:  # a bug in one sink must not keep the others from flushing
            member.error = error
            member.is_reported |= self._fail(type(member.sink), error)
            member.vain += not member.has_worked
            return member.vain > MAX_VAIN
        if member.is_reported:
            self._report("note", f"{member.sink.name} works again")
        member.has_worked, member.vain, member.error, member.is_reported = True, 0, None, False
        return True

    def _fail(self, sink: type[Sink], error: Exception) -> bool:
        """Reports the failure unless the same has been reported; whether it did."""
        trouble = (sink.name, f"{type(error).__name__} {getattr(error, 'errno', '')}")
        is_new = trouble not in self._reported
        if is_new:
            self._reported.add(trouble)
            self._report("failure", describe(sink, error))
        return is_new

    def _lose(self, sink: type[Sink], error: Exception) -> None:
        """Reports a failure that loses something for good."""
        self._incomplete[sink.name] = error
        self._fail(sink, error)


def describe(sink: type[Sink], error: Exception | None) -> str:
    """One line: what failed, how, what that costs; of a package that is missing also how to get it."""
    part = find_part(error.name) if isinstance(error, ImportError) else None
    if part is None:
        return f"{sink.name}: {type(error).__name__}: {error}; {sink.cost}"
    assert isinstance(error, ImportError)
    what, line = how_missing(part, error)
    return f"{sink.name}: the package {part.name} {what}; {line}; {sink.cost}"
