"""Several sinks as one; none of them can hold up another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from flagscale_perf.core.records import Record
from flagscale_perf.sinks.base import Sink, SinkContext

# called with "failure" or "note", and one line
Tell = Callable[[str, str], None]


class FanOut:
    """Hands records to every sink, and tells once what fails, and when it works again."""

    def __init__(self, kinds: Sequence[type[Sink]], context: SinkContext, tell: Tell) -> None:
        self._tell = tell
        self._told: set[tuple[str, str]] = set()
        self._working: dict[str, bool] = {}  # by name; absent before the first flush that worked
        self._sinks: list[Sink] = []
        for kind in kinds:
            self._open(kind, context)

    def write(self, records: Iterable[Record]) -> None:
        """Hands the records to every sink."""
        batch = list(records)
        for sink in self._sinks:
            self._write(sink, batch)

    def rebuild(self, record: Record) -> None:
        """Hands a record of the session's earlier process to the sinks that need it again."""
        for sink in self._sinks:
            if sink.rebuilds:
                self._write(sink, [record])

    def flush(self) -> bool:
        """Lets every sink bring its records to their place. False while one fails that has worked before."""
        return all([self._flush(sink) for sink in self._sinks])

    def close(self) -> None:
        """Closes every sink."""
        for sink in self._sinks:
            sink.close()

    def _open(self, kind: type[Sink], context: SinkContext) -> None:
        try:
            sink = kind.open(context)
        except Exception as error:
            self._fail(kind, error)
            return
        if sink is not None:
            self._sinks.append(sink)

    def _write(self, sink: Sink, batch: list[Record]) -> None:
        for record in batch:
            try:
                sink.write(record)
            except Exception as error:  # a bug in one sink must not cost the others their records
                self._fail(type(sink), error)

    def _flush(self, sink: Sink) -> bool:
        try:
            sink.flush()
        except Exception as error:
            self._fail(type(sink), error)
            if sink.name in self._working:
                self._working[sink.name] = False
            return sink.name not in self._working
        if self._working.get(sink.name) is False:
            self._tell("note", f"{sink.name} works again")
        self._working[sink.name] = True
        return True

    def _fail(self, sink: type[Sink], error: Exception) -> None:
        trouble = (sink.name, f"{type(error).__name__} {getattr(error, 'errno', '')}")
        if trouble not in self._told:
            self._told.add(trouble)
            self._tell("failure", describe(sink, error))


def describe(sink: type[Sink], error: Exception) -> str:
    """One line: what failed, how, what that costs."""
    return f"{sink.name}: {type(error).__name__}: {error}; {sink.cost}"
