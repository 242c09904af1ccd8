"""What is known of a program's calls, from its log or run file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

from flagscale_perf.analysis.job import open_session
from flagscale_perf.rpc.analysis.source import open_source
from flagscale_perf.rpc.dtypes import DType
from flagscale_perf.rpc.records import Status
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.errors import PerfError

_NEEDED = ("total_ns", "server_ns", "sent_bytes", "received_bytes", "dtype")
_FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64)


class Load(NamedTuple):
    """Calls of about one size: how many there are, and the bytes of all together."""

    calls: int
    sent_bytes: int
    received_bytes: int

    @property
    def each(self) -> tuple[int, int]:
        """Bytes that one of them sends and receives."""
        return round(self.sent_bytes / self.calls), round(self.received_bytes / self.calls)


def loads_of(calls: Iterable[tuple[int, int]]) -> tuple[Load, ...]:
    """Groups calls, given as (bytes sent, bytes received): sizes of a group differ by less than a factor of
    2.
    """
    found: dict[tuple[int, int], Load] = {}
    for sent, received in calls:
        group = sent.bit_length(), received.bit_length()
        calls_so_far, *moved = found.get(group, (0, 0, 0))
        found[group] = Load(calls_so_far + 1, moved[0] + sent, moved[1] + received)
    return tuple(load for _, load in sorted(found.items()))


@dataclass(frozen=True)
class Observed:
    """What is known of a program's calls.

    Attributes:
        loads: the calls by size, one or more.
        source: where that is from.
        rpc_s: in calls; None where it is not known, as the next one.
        server_s: of it, in the methods themselves.
        transport, payload: how they were carried; msgpack where it is not known.
        dtypes: of the calls' largest arrays; empty where they are not known.
        server_dtype: what the server computes in; None where it does not say.
    """

    loads: tuple[Load, ...]
    source: str
    rpc_s: float | None = None
    server_s: float | None = None
    transport: str | None = None
    payload: str = "msgpack"
    dtypes: tuple[str, ...] = ()
    server_dtype: str | None = None

    @property
    def whole(self) -> Load:
        """All calls together."""
        return Load(*map(sum, zip(*self.loads, strict=True)))

    @property
    def carrying_s(self) -> float | None:
        """In calls, without the methods themselves; None where that is not known."""
        return None if self.rpc_s is None or self.server_s is None else max(0.0, self.rpc_s - self.server_s)

    @classmethod
    def of_session(cls, path: Path) -> Observed:
        """Reads a run file or a performance log: the calls that completed. Raises PerfError if there is
        none.
        """
        source = open_source(open_session(path))
        found: dict[str, list[Any]] = {name: [] for name in _NEEDED}

        def begin_anew() -> None:
            """Forgets an earlier session of the same log."""
            for values in found.values():
                values.clear()

        for batch in source.read(begin_anew):
            is_ok = [status == Status.OK for status in batch["status"]]
            for name, values in found.items():
                values.extend(compress(batch[name], is_ok))
        if not found["total_ns"]:
            raise PerfError(f"{path} has no call that came to its end; name a log or a run file of calls")
        sizes = zip(found["sent_bytes"], found["received_bytes"], strict=True)
        facts = source.facts()
        return cls(
            loads_of((round(sent), round(received)) for sent, received in sizes),
            str(path),
            _sum_s(found["total_ns"]),
            _sum_s(found["server_ns"]),
            transport=facts.transport or None,
            payload=facts.payload or "msgpack",
            dtypes=tuple(DType(each).name.lower() for each in sorted(set(found["dtype"])) if each in _FLOATS),
            server_dtype=facts.dtype,
        )


def _sum_s(times_ns: Sequence[float | None]) -> float | None:
    """None if one of them is unknown."""
    known = [time for time in times_ns if time is not None]
    return sum(known) / NS_PER_S if len(known) == len(times_ns) else None
