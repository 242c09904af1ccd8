"""TransferQueue's own metrics beside the client's: what its storage units see of the time a client waits.

TransferQueue serves them (`metrics.enabled`) as long as it lives, so they are kept as a file beside the run
file: `curl -o logs/trace/tq_metrics.prom http://HOST:PORT/metrics` before the end of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flagscale_perf.analysis.blocks import Block, Note, Quantity, Section, Table
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.packages import missing
from flagscale_perf.trace.analysis.sums import Sums
from flagscale_perf.trace.records import Kind

FILE = "tq_metrics.prom"
OPERATIONS = {"put": "PUT_DATA", "get": "GET_DATA"}  # of a client, and what it asks a unit for
COLLECTED_S = 10  # TransferQueue's controller asks its units for theirs only so often
_COUNT, _MEAN = "tq_storage_request_ops", "tq_storage_request_latency_avg"
_CONTROLLER_S = "tq_controller_request_duration_seconds"
_MS_PER_S = 1000


@dataclass(frozen=True)
class Requests:
    """Requests of one kind to one server.

    Attributes:
        count: of them.
        mean_s: how long the server worked on one.
    """

    count: int
    mean_s: float


@dataclass(frozen=True)
class ServerMetrics:
    """What TransferQueue measured.

    Attributes:
        units: by operation (`put`, `get`) and storage unit.
        controller: by what it was asked for, such as `NOTIFY_DATA_UPDATE`.
    """

    units: Mapping[str, Mapping[str, Requests]] = field(default_factory=dict)
    controller: Mapping[str, Requests] = field(default_factory=dict)


@dataclass(frozen=True)
class Client:
    """What the clients measured of one kind of operation.

    Attributes:
        count: of operations.
        mean_s: from the call to the result.
    """

    count: float
    mean_s: float


@dataclass(frozen=True)
class CrossCheck:
    """One kind of operation, measured from both sides.

    Attributes:
        operation: `put` or `get`.
        client: what the clients saw.
        requests: that the units have counted; fewer than there were, as they are asked every `COLLECTED_S`
            seconds.
        requests_per_operation: of those, for one operation of a client.
        unit_mean_s: how long a unit worked on one.
        slowest_unit: whose mean is the highest.
        slowest_mean_s: that mean.
        outside_share: of the time that a client waits, what no unit has worked in, where an operation waits
            for the slowest of its units; None where the units say more than the client, which cannot be.
    """

    operation: str
    client: Client
    requests: int
    requests_per_operation: float
    unit_mean_s: float
    slowest_unit: str
    slowest_mean_s: float
    outside_share: float | None


def beside(run_file: Path) -> Path | None:
    """The file with TransferQueue's metrics beside the run file; None if there is none."""
    path = run_file.with_name(FILE)
    return path if path.is_file() else None


def read(path: Path) -> ServerMetrics:
    """The metrics in a file as TransferQueue serves them. Raises PerfError if it is not in that format."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PerfError(f"cannot read {str(path)!r}: {error}") from None
    counts: dict[tuple[str, str], int] = {}
    means: dict[tuple[str, str], float] = {}
    asked: dict[str, dict[str, float]] = {}
    for name, labels, value in _samples(path, text):
        place = (labels.get("op_type", ""), labels.get("storage_unit_id", ""))
        if name == _COUNT:
            counts[place] = int(value)
        elif name == _MEAN:
            means[place] = value
        elif name.startswith(_CONTROLLER_S) and name.endswith(("_count", "_sum")):
            asked.setdefault(place[0], {})[name.rpartition("_")[2]] = value
    return ServerMetrics(
        units={
            operation: {
                unit: Requests(count, means[asked_for, unit])
                for (asked_for, unit), count in counts.items()
                if asked_for == wanted and count and (asked_for, unit) in means
            }
            for operation, wanted in OPERATIONS.items()
        },
        controller={
            name: Requests(int(sums["count"]), sums["sum"] / sums["count"])
            for name, sums in asked.items()
            if sums.get("count") and "sum" in sums
        },
    )


def cross_check(server: ServerMetrics, clients: Mapping[str, Client]) -> list[CrossCheck]:
    """The kinds of operation that both sides measured."""
    found = []
    for operation, client in clients.items():
        units = server.units.get(operation)
        if not units or not client.count or not client.mean_s:
            continue
        requests = sum(unit.count for unit in units.values())
        slowest = max(units, key=lambda unit: units[unit].mean_s)
        outside = 1 - units[slowest].mean_s / client.mean_s
        found.append(
            CrossCheck(
                operation=operation,
                client=client,
                requests=requests,
                requests_per_operation=requests / client.count,
                unit_mean_s=sum(unit.count * unit.mean_s for unit in units.values()) / requests,
                slowest_unit=slowest,
                slowest_mean_s=units[slowest].mean_s,
                outside_share=outside if outside >= 0 else None,
            )
        )
    return found


def _samples(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError as error:
        raise missing("prometheus_client", error, path.name) from None
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                yield sample.name, sample.labels, sample.value
    except ValueError as error:
        raise PerfError(f"{path} has no metrics in Prometheus' format: {error}") from None


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
