"""What TransferQueue's storage units measured of the operations that their clients waited for."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.blocks import Block, Note, Quantity, Section, Table
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.trace.analysis.sums import Sums
from flagscale_perf.trace.records import Kind
from flagscale_perf.trace.server_metrics import COLLECTED_S, Client, CrossCheck, beside, cross_check, read

_MS_PER_S = 1000


def section_of(run_file: Path, sums: Sums) -> Section | None:
    """A section on TransferQueue's own metrics, if they are in a file beside the run file."""
    path = beside(run_file)
    if path is None:
        return None
    try:
        checks = cross_check(read(path), _clients(sums))
    except PerfError as error:
        return _section([Note(str(error), "warn")])
    return _section(_blocks(checks) if checks else [Note(f"{path.name} has no request of these operations")])


def _section(blocks: list[Block]) -> Section:
    return Section("server", "Server", "What TransferQueue's storage units say", blocks)


def _clients(sums: Sums) -> dict[str, Client]:
    found = {}
    for kind in Kind:
        total = sums.operations[kind].total
        if total.count:
            found[kind.name.lower()] = Client(total.count, total.total / total.count / NS_PER_S)
    return found


def _blocks(checks: list[CrossCheck]) -> list[Block]:
    rows = [
        (
            check.operation,
            _ms(check.client.mean_s),
            _ms(check.unit_mean_s),
            check.slowest_unit,
            _ms(check.slowest_mean_s),
            Quantity(check.requests_per_operation, "", 2),
            Quantity(check.outside_share, "share", 1),
        )
        for check in checks
    ]
    headings = ("", "client ms", "unit ms", "slowest unit", "its ms", "requests each", "outside of it")
    return [
        Table(headings, rows),
        Note(
            "means; what no storage unit works in is the network, waiting, messages, metadata and decoding; "
            f"TransferQueue asks its units for theirs every {COLLECTED_S} s, so the last requests are missing"
        ),
    ]


def _ms(value_s: float) -> Quantity:
    return Quantity(value_s * _MS_PER_S, "", 3)
