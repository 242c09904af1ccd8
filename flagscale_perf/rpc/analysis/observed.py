"""What is known of a program's calls: from its log or run file, or from reported figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

from flagscale_perf.rpc.analysis.expected import Expected, expected
from flagscale_perf.rpc.analysis.source import open_source
from flagscale_perf.rpc.arrays import DType
from flagscale_perf.rpc.costs.claims import MIB, Reported
from flagscale_perf.rpc.costs.model import Traffic
from flagscale_perf.rpc.records import Status
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.errors import PerfError

_NEEDED = (
    "method",
    "total_ns",
    "serialize_ns",
    "server_ns",
    "deserialize_ns",
    "sent_bytes",
    "received_bytes",
    "dtype",
)
_FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64)
_NARROW = (DType.FLOAT16, DType.BFLOAT16)


@dataclass(frozen=True)
class Observed:
    """What is known of a program's calls.

    Attributes:
        traffic: their sizes.
        source: where that is from.
        rpc_s: in calls; None where it is not known, as the next two.
        server_s: of it, in the methods themselves.
        total_s: of the whole program.
        transport, payload, control: how they were carried; msgpack where it is not known.
        serialize_s, deserialize_s: of rpc_s or beside it, on the caller's side.
        dtypes: of the calls' largest arrays; empty where they are not known.
        server_dtype: what the server computes in; None where it does not say.
        expected: what the calls of a split model have in closed form; None where they are none.
    """

    traffic: Traffic
    source: str
    rpc_s: float | None = None
    server_s: float | None = None
    total_s: float | None = None
    transport: str | None = None
    payload: str = "msgpack"
    control: str = "zeromq"
    serialize_s: float | None = None
    deserialize_s: float | None = None
    dtypes: tuple[str, ...] = ()
    server_dtype: str | None = None
    expected: Expected | None = None

    @property
    def carrying_s(self) -> float | None:
        """In calls, without the methods themselves; None where that is not known."""
        return None if self.rpc_s is None or self.server_s is None else max(0.0, self.rpc_s - self.server_s)

    @property
    def may_be_halved(self) -> bool:
        """Whether a type of half the size is left: not where all calls have one."""
        return not self.dtypes or not set(self.dtypes) <= {each.name.lower() for each in _NARROW}

    @classmethod
    def of_figures(cls, reported: Reported, source: str) -> Observed | None:
        """None if the file has no [run]."""
        run = reported.run
        if run is None:
            return None
        traffic = Traffic.alike(run.calls, run.sent_mib * MIB, run.received_mib * MIB)
        serialize, deserialize = (
            None if each is None else each * run.calls / 1e3
            for each in (run.serialize_ms, run.deserialize_ms)
        )
        return cls(
            traffic,
            source,
            run.rpc_s,
            run.server_s,
            run.total_s,
            serialize_s=serialize,
            deserialize_s=deserialize,
        )

    @classmethod
    def of_session(cls, path: Path) -> Observed:
        """Reads a run file or a performance log: the calls that completed. Raises PerfError if there is
        none.
        """
        source = open_source(path)
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
        sums = {name: _sum_s(found[name]) for name in _NEEDED if name.endswith("_ns")}
        facts = source.facts()
        return cls(
            Traffic.of((round(sent), round(received)) for sent, received in sizes),
            str(path),
            sums["total_ns"],
            sums["server_ns"],
            transport=facts.transport or None,
            payload=facts.payload or "msgpack",
            control=facts.control or "zeromq",
            serialize_s=sums["serialize_ns"],
            deserialize_s=sums["deserialize_ns"],
            dtypes=tuple(DType(each).name.lower() for each in sorted(set(found["dtype"])) if each in _FLOATS),
            server_dtype=facts.dtype,
            expected=expected(
                facts.model,
                facts.dtype,
                list(zip(found["method"], found["sent_bytes"], found["received_bytes"], strict=True)),
            ),
        )


def _sum_s(times_ns: Sequence[float | None]) -> float | None:
    """None if one of them is unknown."""
    known = [time for time in times_ns if time is not None]
    return sum(known) / NS_PER_S if len(known) == len(times_ns) else None
