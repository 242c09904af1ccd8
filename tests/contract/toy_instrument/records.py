"""What is recorded of calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from flagscale_perf.spine.records import record


@record("toy_call", slot=200, start="start_ns", duration="dur_ns")
class CallRecord(NamedTuple):
    """One call.

    Attributes:
        number: from 1.
        start_ns: monotonic mark.
        dur_ns: how long it took.
        sent_bytes: what it sent.
    """

    number: int
    start_ns: int
    dur_ns: int
    sent_bytes: int


@record("toy_calls", start="end_wall_ns")
@dataclass(frozen=True)
class CallsRecord:
    """Calls summed.

    Attributes:
        number: of the last one.
        end_wall_ns: Unix time of its end.
        calls: how many.
        dur_ns, sent_bytes: sums.
    """

    number: int
    end_wall_ns: int
    calls: int
    dur_ns: int
    sent_bytes: int
