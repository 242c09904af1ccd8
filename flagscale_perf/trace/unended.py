"""Finds what has begun in a process and not ended: in progress, hanging, or cut off by its death."""

from __future__ import annotations

from flagscale_perf.trace.records import Begun, CallRecord, OperationRecord, StartRecord, WaitRecord

End = OperationRecord | CallRecord | WaitRecord

Key = tuple[bool, int]


def key_of(record: StartRecord | End) -> Key:
    """The same for the starts and the end of one thing: whether it is a call, and its start."""
    if isinstance(record, StartRecord):
        return Begun.CALL <= record.begun <= Begun.CALL_PUT, record.start_ns
    return isinstance(record, CallRecord), record.start_ns


class Unended:
    """Operations, calls and waits of one process.

    Attributes:
        begun: what has begun of each, in order.
    """

    def __init__(self) -> None:
        self.begun: dict[Key, list[StartRecord]] = {}

    def add(self, record: StartRecord | End) -> None:
        """Adds the process's next start or end."""
        if isinstance(record, StartRecord):
            self.begun.setdefault(key_of(record), []).append(record)
        else:
            self.begun.pop(key_of(record), None)
