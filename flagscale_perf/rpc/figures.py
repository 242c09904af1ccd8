"""The figures of a call: the one table from which the log, CSV, reports and docs are generated.

The first ten have the names, titles and widths of the log that others write, too.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TypeAlias

from flagscale_perf.rpc.dtypes import DType
from flagscale_perf.rpc.records import CallRecord, Status
from flagscale_perf.rpc.stages import FIELDS, OTHER_STAGE, STAGES, Stage, stage_times
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.figures import (
    FINE_MILLISECONDS,
    PLAIN,
    Column,
    Figure,
    Table,
    Unit,
    Value,
    start_figure,
)
from flagscale_perf.spine.session import Starts
from flagscale_perf.spine.units import UNKNOWN, printable

KIB, MIB = 1024, 1 << 20  # what the log calls KB and MB

_KIB = Unit("KiB", KIB, 2)
_MIB_PER_S = Unit("MiB/s", MIB, 2)
_STATUS = {each.value: each.name for each in Status}
_DTYPES = {each.value: each.name.lower() for each in DType}


Call: TypeAlias = Figure[CallRecord, Starts]


def method_name(text: str) -> str:
    """A method's name as one word that cannot break a line or a column."""
    return printable(text).replace(" ", "_") or UNKNOWN


def status_name(status: int) -> str:
    """For example `OK` or `TIMEOUT`."""
    return _STATUS.get(status, str(status))


def dtype_name(dtype: int) -> str | None:
    """For example `bfloat16`; None for a call without arrays."""
    return _DTYPES.get(dtype)


def throughput(call: CallRecord) -> float | None:
    """Bytes of arrays per second, both directions together."""
    return call.moved_bytes * NS_PER_S / call.total_ns if call.total_ns else None


def _ms(column: str, label: str, width: int, value: Callable[[CallRecord], int | None], meaning: str) -> Call:
    title = Column(f"{column}(ms)", width)
    return Figure(f"{column}_ms", label, FINE_MILLISECONDS, lambda call, _: value(call), meaning, title)


def _of(stage: Stage, value: Callable[[CallRecord], int | None]) -> Call:
    return _ms(stage.column, stage.name, stage.width, value, stage.meaning)


def _stages(is_required: bool) -> list[Call]:
    return [
        _of(stage, attrgetter(field))
        for stage, field in zip(STAGES, FIELDS, strict=True)
        if stage.is_required is is_required
    ]


def _kb(key: str, label: str, value: Callable[[CallRecord], int], meaning: str) -> Call:
    title = f"{key.removesuffix('_KB')}(KB)"
    return Figure(key, label, _KIB, lambda call, _: value(call), meaning, Column(title, 13))


def _plain(key: str, label: str, column: Column, value: Callable[[CallRecord], Value], meaning: str) -> Call:
    return Figure(key, label, PLAIN, lambda call, _: value(call), meaning, column)


_REQUIRED: tuple[Call, ...] = (
    _plain("ID", "call", Column("ID", 6), lambda call: call.number, "number of the call, from 1"),
    _plain("Method", "method", Column("Method", 21), lambda call: method_name(call.method), "its name"),
    *_stages(is_required=True),
    _ms("Total", "total", 13, lambda call: call.total_ns, "the whole call: all stages and Other"),
    _kb("Sent_KB", "sent", lambda call: call.sent_bytes, "bytes of arrays sent / 1024"),
    _kb("Recv_KB", "received", lambda call: call.received_bytes, "bytes of arrays received / 1024"),
    Figure(
        "Throughput_MBps",
        "throughput",
        _MIB_PER_S,
        lambda call, _: throughput(call),
        "(sent + received) / 1024² / total",
        Column("Throughput(MB/s)", 18),
    ),
)
_MORE: tuple[Call, ...] = (
    *_stages(is_required=False),
    _of(OTHER_STAGE, lambda call: stage_times(call)[-1]),
    _kb(
        "Socket_KB",
        "through a socket",
        lambda call: call.socket_sent_bytes + call.socket_received_bytes,
        "bytes through a socket, both ways, headers included / 1024",
    ),
    _kb(
        "Shared_KB",
        "through shared memory",
        lambda call: call.shared_sent_bytes + call.shared_received_bytes,
        "bytes through shared memory, both ways / 1024",
    ),
    _plain(
        "DType",
        "type",
        Column("DType", 10),
        lambda call: dtype_name(call.dtype),
        "of the largest array; `-` without arrays",
    ),
    _plain(
        "Status",
        "status",
        Column("Status", 10),
        lambda call: status_name(call.status),
        "OK, TIMEOUT, PEER_GONE, REFUSED, FAILED or INVALID",
    ),
    start_figure("Start"),
)

REQUIRED = len(_REQUIRED)  # so many columns other logs of this kind have, too
# No view shows a time beside a row: `Start` is one of the figures.
TABLE = Table(record=CallRecord, step="number", time="", context=Starts, figures=(*_REQUIRED, *_MORE))
