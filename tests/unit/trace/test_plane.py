"""What an adapter tells of a queue becomes operations, their stages and waits; nothing of it changes what the
queue returns or raises. Real queues: tests/trace.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.trace import plane, running
from flagscale_perf.trace import tracer as tracing
from flagscale_perf.trace.analysis.lines import TraceLines
from flagscale_perf.trace.analysis.transfers import Transfers, What, pairs_of
from flagscale_perf.trace.lines import Lines
from flagscale_perf.trace.options import TraceOptions
from flagscale_perf.trace.records import Begun, Kind, OperationRecord, StartRecord, UnitsRecord
from flagscale_perf.trace.running import OPERATION
from flagscale_perf.trace.tracer import Tracer
from tests.unit.trace.test_tracer import batch

MS = 1_000_000


class Queue:
    """One whose parts take as long as they are told; the clock is moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.kept = MS, list[Any]()
        for module in (plane, tracing, running):
            monkeypatch.setattr(module, "monotonic_ns", lambda: self.now)
        options = TraceOptions(trace=True, detail=True, directory=Path("unused"))
        monkeypatch.setattr(tracing, "active", Tracer(options, self.kept.append))

    async def after(self, ms: int, found: Any = None) -> Any:
        self.now += ms * MS
        return found

    def of(self, kind: Any) -> list[Any]:
        return [record for record in self.kept if isinstance(record, kind)]

    @property
    def names(self) -> dict[int, str]:
        return {record.number: record.text for record in self.of(NameRecord)}

    async def ask(self, unit: str, *parts: Callable[[], Any]) -> None:
        """A request to a unit that consists of these."""
        request = plane.asking()
        try:
            for part in parts:
                await part()
        finally:
            plane.asked(request, unit)

    async def encode(self, ms: int) -> None:
        """Makes a message, which takes so long."""
        start_ns = plane.coding()
        self.now += ms * MS
        plane.coded(start_ns, Kind.PUT)

    async def notify(self, ms: int) -> None:
        """Tells the controller, likewise."""
        start_ns = self.now
        self.now += ms * MS
        plane.timed(start_ns, "notify_ns")

    def run(self, kind: Kind, *parts: Callable[[], Awaitable[Any]], found: Any = None) -> OperationRecord:
        """An operation with these parts within its storage's."""

        async def storage() -> Any:
            begun = plane.storing()
            for part in parts:
                await part()
            plane.stored(begun)
            return found

        data = {"prompt": SimpleNamespace(nbytes=64, is_nested=False)}
        asyncio.run(plane.operated(kind, lambda args, kwargs: (batch([4, 5]), "train", data))(storage)())
        assert OPERATION.get() is None
        return self.of(OperationRecord)[-1]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    return Queue(monkeypatch)


def test_requests_to_one_unit_count_together_and_one_within_another_is_part_of_it(queue: Queue) -> None:
    put = queue.run(
        Kind.PUT,
        partial(queue.after, 1),
        partial(
            queue.ask, "a", partial(queue.ask, "within", partial(queue.after, 10)), partial(queue.encode, 3)
        ),
        partial(queue.ask, "b", partial(queue.after, 12)),
        partial(queue.ask, "a", partial(queue.after, 5)),
        partial(queue.notify, 2),
        found=batch([4, 5]),
    )
    (units,) = queue.of(UnitsRecord)
    waits = [(queue.names[name], took_ns // MS) for name, took_ns in pairs_of(units.waits)]
    assert waits == [("a", 10), ("b", 12), ("a", 5)]
    assert (queue.names[put.slowest_unit], put.slowest_unit_ns) == ("a", 15 * MS)
    stages = (put.select_ns, put.serialize_ns, put.unit_ns, put.notify_ns, put.total_ns)
    assert stages == (MS, 3 * MS, 27 * MS, 2 * MS, 33 * MS)
    assert (put.decode_ns, put.pack_ns) == (None, None)


def test_an_update_is_begun_and_recorded_as_one_and_writes_fields_as_a_put_does(queue: Queue) -> None:
    update = queue.run(
        Kind.UPDATE, partial(queue.ask, "a", partial(queue.encode, 1), partial(queue.after, 4))
    )
    assert (update.operation, update.rows, update.size_bytes) == (Kind.UPDATE, 2, 64)
    assert (update.first_row, update.serialize_ns, update.unit_ns) == (4, MS, 4 * MS)
    assert [start.begun for start in queue.of(StartRecord)] == [Begun.UPDATE]
    lines = Lines(Anchor(0, 0), 7, queue.names).of(update)
    assert [line.split(" | ")[1] for line in lines] == [
        "stage=TQ_CLIENT_UPDATE_START",
        "stage=TQ_CLIENT_UPDATE_END",
    ]
    (read,) = TraceLines().read(["\n".join(lines).encode()])
    assert (read.kind, read.seconds, read.rows) == (Kind.UPDATE, [0.005], [2])
    transfers = Transfers()
    transfers.add(update, "process", What("train"))
    assert transfers.transfers[0].kind is Kind.PUT


@pytest.mark.parametrize(("detail", "in_call", "stamp"), list(product((False, True), repeat=3)))
def test_an_operation_costs_one_frame_and_none_of_the_tracers_where_nothing_is_told_of_it(
    monkeypatch: pytest.MonkeyPatch, detail: bool, in_call: bool, stamp: bool
) -> None:
    options = TraceOptions(trace=True, detail=detail, stamp=stamp, directory=Path("unused"))
    monkeypatch.setattr(tracing, "active", Tracer(options, lambda record: None))
    frames, follows = list[str](), list[bool]()

    async def put(rows: list[int]) -> Any:
        frame = sys._getframe(1)
        while frame.f_code is not run.__code__:
            frames.append(frame.f_code.co_name)
            frame = frame.f_back
        follows.append(OPERATION.get() is not None)
        return batch(rows)

    async def run() -> None:
        if in_call:
            running.CALL.set(running.Call("work", batch([1]), None, 0))
        await plane.operated(Kind.PUT, lambda args, kwargs: (None, "train", {}))(put)([1])

    asyncio.run(run())
    assert frames == ["operate"]
    assert follows == [detail or in_call or stamp]


@pytest.mark.parametrize("is_traced", [True, False])
def test_what_the_queue_raises_and_returns_is_as_without(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, is_traced: bool
) -> None:
    if not is_traced:
        monkeypatch.setattr(tracing, "active", None)

    async def fail() -> None:
        raise KeyError("theirs")

    for call in (
        lambda run: plane.operated(Kind.GET, lambda args, kwargs: (batch([1]), "", None))(run)(),
        lambda run: plane.wait(run, "train", "actor", 4),
        lambda run: plane.clear(run, "train", None),
    ):
        with pytest.raises(KeyError, match="theirs"):
            asyncio.run(call(fail))
        result = batch([1])
        result.items = dict(prompt=SimpleNamespace(nbytes=8, is_nested=False)).items
        assert asyncio.run(call(partial(queue.after, 1, result))) is result
    assert len(queue.of(OperationRecord)) == 2 * is_traced
