"""Follows one sample: who created it, who wrote which of its fields, and who got what from whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flagscale_perf.analysis.blocks import Cell, Pairs, Quantity, Report, Section, Table
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.trace.analysis.lineage import join
from flagscale_perf.trace.analysis.lives import Nodes, cleared_exactly, in_turn
from flagscale_perf.trace.analysis.source import Traces
from flagscale_perf.trace.analysis.transfers import Clear, Transfer, Transfers
from flagscale_perf.trace.batches import key_number
from flagscale_perf.trace.records import Kind

UNKNOWN = "(not recorded)"


class Event(NamedTuple):
    """One put, get or clear of the sample.

    Attributes:
        at_s: since the first operation of the run: of a put, when it was there for others.
        what: `created`, `put`, `got` or `cleared`.
        function, process: by whom; empty of a clear.
        fields: of it.
        written: of a get, by whom.
    """

    at_s: float
    what: str
    function: str = ""
    process: str = ""
    fields: str = ""
    written: str = ""


@dataclass(frozen=True)
class Sample:
    """A sample and its events, in time order."""

    partition: str
    index: int
    events: list[Event]

    def as_dict(self) -> dict[str, Any]:
        """Its content as JSON-ready data."""
        events = [one._asdict() for one in self.events]
        return {"partition": self.partition, "index": self.index, "events": events}


def report_of_sample(traces: Traces, asked: str) -> Report:
    """The report of a sample, PARTITION:INDEX or PARTITION:KEY. Raises PerfError if nothing is recorded."""
    if traces.transfers is None:
        raise PerfError(f"a log has no indexes, so nothing is known of sample {asked!r}; give the run file")
    partition, index = _by_key(traces.transfers, asked) or _parsed(asked)
    found = Sample(partition, index, _Story(traces.transfers, partition, index).events())
    if not found.events:
        known = sorted({transfer.partition for transfer in traces.transfers.transfers})
        raise PerfError(
            f"no put or get of sample {asked!r} is recorded; there are samples of the partitions"
            f" {', '.join(map(repr, known[:10])) or '(none)'}"
        )
    head = ("at s", "", "function", "process", "fields", "written by")
    rows: list[Sequence[Cell]] = [(Quantity(one.at_s, "", 6), *one[1:]) for one in found.events]
    return Report(
        title=f"Sample {index} of partition {partition}",
        subject=traces.title,
        facts=[Pairs([("begun", traces.begun)])],
        sections=[Section("sample", "Sample", "What became of it", [Table(head, rows)])],
        content=found,
        reading=traces.reading,
    )


def _by_key(transfers: Transfers, asked: str) -> tuple[str, int] | None:
    """The sample that was given this key last; None where it is no key."""
    for at, letter in enumerate(asked):
        held = transfers.keys.get((asked[:at], key_number(asked[at + 1 :]))) if letter == ":" else None
        if held:
            return asked[:at], max(held, key=lambda index: held[index])
    return None


def _parsed(asked: str) -> tuple[str, int]:
    partition, colon, index = asked.rpartition(":")
    if not colon or not index.isascii() or not index.isdigit():
        raise PerfError(
            f"--sample is PARTITION:INDEX, such as train_0:17, not {asked!r}; PARTITION:KEY where the run was"
            " traced with TQ_TRACE_KEYS=1 and a sample has this key"
        )
    return partition, int(index)


class _Story:
    """The transfers of one sample, with the join's own rule for where it begins anew."""

    def __init__(self, transfers: Transfers, partition: str, index: int) -> None:
        self._transfers, self._partition, self._index = transfers, partition, index
        self._functions = [transfers.function_of(transfer) for transfer in transfers.transfers]
        self._is_exact = partition in cleared_exactly(transfers)
        self._nodes = Nodes(transfers.transfers, self._functions)
        self._last_consumer = join(transfers).last.name
        self._first_ns = min((transfer.start_ns for transfer in transfers.transfers), default=0)

    def events(self) -> list[Event]:
        """Each put, get and clear, in time order."""
        found: list[Event] = []
        node = 0
        for one in in_turn(self._transfers):
            if not self._is_of(one if isinstance(one, Clear) else self._transfers.transfers[one]):
                continue
            if isinstance(one, Clear):
                node = 0
                found.append(Event(self._at_s(one.at_ns), "cleared"))
            elif self._transfers.transfers[one].kind is Kind.PUT:
                is_new = not node or (not self._is_exact and self._nodes.begins(node, one))
                node = self._nodes.after_put(0 if is_new else node, one)
                found.append(self._event(one, "created" if is_new else "put", ""))
            else:
                found.append(self._event(one, "got", self._written(one, node)))
                if node and self._functions[one] == self._last_consumer:
                    node = self._nodes.after_last_get(node)
        return found

    def _is_of(self, held: Transfer | Clear) -> bool:
        """Whether the sample is in it; a clear without ranges takes the whole partition."""
        if held.partition != self._partition:
            return False
        if held.ranges is None:
            return isinstance(held, Clear)
        return any(first <= self._index < first + count for first, count in held.ranges)

    def _event(self, place: int, what: str, written: str) -> Event:
        transfer = self._transfers.transfers[place]
        fields = UNKNOWN if transfer.fields is None else ", ".join(sorted(transfer.fields))
        return Event(
            self._at_s(transfer.ready_ns), what, self._functions[place], transfer.process, fields, written
        )

    def _at_s(self, at_ns: int) -> float:
        return (at_ns - self._first_ns) / NS_PER_S

    def _written(self, get: int, node: int) -> str:
        """Who wrote what was got, field by field where these are known."""
        wanted, left = self._transfers.transfers[get].fields, self._transfers.transfers[get].fields
        words = []
        for put in self._nodes.writers(node, wanted):
            made = self._transfers.transfers[put]
            by = f"{self._functions[put]} at {self._at_s(made.ready_ns):.6f} s"
            if left is None or made.fields is None:
                words.append(by)
                continue
            words.append(f"{', '.join(sorted(left & made.fields))}: {by}")
            left -= made.fields
        if left:
            words.append(f"{', '.join(sorted(left))}: {UNKNOWN}")
        return "; ".join(words) or UNKNOWN
