"""Follows one sample: who created it, who wrote which of its fields, and who got what from whom; and those
that took longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flagscale_perf.analysis.blocks import Block, Cell, Note, Pairs, Report, Section, Table, lasting
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.trace.analysis.latest import Late
from flagscale_perf.trace.analysis.lineage import Lineage, join
from flagscale_perf.trace.analysis.lives import Nodes, cleared_exactly, in_turn
from flagscale_perf.trace.analysis.source import Traces
from flagscale_perf.trace.analysis.transfers import Clear, Transfer, Transfers
from flagscale_perf.trace.batches import key_number
from flagscale_perf.trace.records import Kind

UNKNOWN = "(not recorded)"
LATEST = "latest"
MOST_LIVES = 20  # that are shown; JSON has all


class Event(NamedTuple):
    """One put, get or clear of the sample.

    Attributes:
        after_s: since the sample's first put was there for others: when this one was, or when a get began.
        what: `created`, `put`, `got` or `cleared`.
        waited_s: of a get: since the last of what it got was there; below 0 where clocks differ.
        took_s: the whole put or get, with all other samples of it.
        function, process: by whom; empty of a clear.
        fields: of it; of a get, with who wrote them.
    """

    after_s: float
    what: str
    waited_s: float | None = None
    took_s: float | None = None
    function: str = ""
    process: str = ""
    fields: str = ""


@dataclass
class Life:
    """A sample's time at its index, until that is cleared or used anew.

    Attributes:
        at_s: of its first put, since the job's first operation.
        step: of the training, as the newest batch with it says; None where none does.
        events: in time order.
    """

    at_s: float
    step: int | None = None
    events: list[Event] = field(default_factory=list)


@dataclass(frozen=True)
class Sample:
    """The samples that an index has had."""

    partition: str
    index: int
    lives: list[Life]

    def as_dict(self) -> dict[str, Any]:
        """Its content as JSON-ready data."""
        lives = [vars(life) | {"events": [one._asdict() for one in life.events]} for life in self.lives]
        return {"partition": self.partition, "index": self.index, "lives": lives}


def report_of_sample(traces: Traces, asked: str) -> Report:
    """The report of a sample, PARTITION:INDEX or PARTITION:KEY, or of the `latest`. Raises PerfError if
    nothing is recorded.
    """
    if traces.transfers is None:
        raise PerfError(f"a log has no indexes, so nothing is known of sample {asked!r}; give the run file")
    lineage = join(traces.transfers)
    late = _latest(lineage) if asked == LATEST else None
    if late is not None:
        partition, index = late.partition, late.index
    else:
        partition, index = _by_key(traces.transfers, asked) or _parsed(asked)
    found = Sample(partition, index, list(_Story(traces.transfers, partition, index, lineage).lives()))
    if not found.lives:
        raise _unknown(traces.transfers, asked)
    first_ns = min(transfer.start_ns for transfer in traces.transfers.transfers)
    at_s = None if late is None else (late.first_ns - first_ns) / NS_PER_S
    shown = [life for life in found.lives if at_s in (None, life.at_s)]
    sections = [Section(LATEST, "Latest", "", latest_table(lineage))] if late is not None else []
    sections += [_section(place, life) for place, life in enumerate(shown[-MOST_LIVES:])]
    left_out = len(shown) - MOST_LIVES
    notes = [Note(f"its last {MOST_LIVES} samples; {left_out} before them")] if left_out > 0 else []
    return Report(
        title=f"Sample {index} of partition {partition}",
        facts=[
            Pairs([("of", ", ".join(filter(None, (traces.title, traces.subject)))), ("begun", traces.begun)]),
            *notes,
        ],
        sections=sections,
        content=found,
        reading=traces.reading,
    )


def _latest(lineage: Lineage) -> Late:
    if not lineage.last.latest:
        raise PerfError(f"--sample {LATEST}: no sample was put and got by the same run's processes")
    return lineage.last.latest[0]


def _unknown(transfers: Transfers, asked: str) -> PerfError:
    known = sorted({transfer.partition for transfer in transfers.transfers})
    return PerfError(
        f"no put or get of sample {asked!r} is recorded; there are samples of the partitions"
        f" {', '.join(map(repr, known[:10])) or '(none)'}"
    )


def latest_table(lineage: Lineage) -> list[Block]:
    """The samples that took longest from their first put until the last consumer got them."""
    rows: list[Sequence[Cell]] = [
        (
            one.name,
            one.step if one.step is None else str(one.step),
            lasting(one.used_ns - one.first_ns),
            lasting(one.ready_ns - one.first_ns),
            lasting(one.used_ns - one.ready_ns),
            one.written,
        )
        for one in lineage.last.latest
    ]
    if not rows:
        return []
    head = ("samples", "step", "took", "until all was put", "then waited", "last put by")
    title = f"The latest samples: from their first put until {lineage.last.name} got them"
    return [Table(head, rows, 0, title)]


def _section(place: int, life: Life) -> Section:
    step = "A sample" if life.step is None else f"Step {life.step}"
    rows: list[Sequence[Cell]] = [
        (_time(one.after_s), one.what, _time(one.waited_s), _time(one.took_s), *one[4:])
        for one in life.events
    ]
    head = ("after", "", "waited", "took", "function", "process", "fields")
    kept = [at for at, name in enumerate(head) if at < 2 or any(row[at] for row in rows)]
    table = Table([head[at] for at in kept], [[row[at] for at in kept] for row in rows])
    title = f"{step}: first put {life.at_s:.3f} s after the first operation"
    return Section(f"life-{place}", step, title, [table])


def _time(seconds: float | None) -> Cell:
    return None if seconds is None else lasting(seconds * NS_PER_S)


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
            f"--sample is {LATEST} or PARTITION:INDEX, such as train_0:17, not {asked!r}; PARTITION:KEY where"
            " the run was traced with TQ_TRACE_KEYS=1 and a sample has this key"
        )
    return partition, int(index)


class _Story:
    """The transfers of one index, with the join's own rule for where a sample begins anew."""

    def __init__(self, transfers: Transfers, partition: str, index: int, lineage: Lineage) -> None:
        self._transfers, self._partition, self._index = transfers, partition, index
        self._functions = [transfers.function_of(transfer) for transfer in transfers.transfers]
        self._is_exact = partition in cleared_exactly(transfers)
        self._nodes = Nodes(transfers.transfers, self._functions)
        self._last_consumer = lineage.last.name
        self._first_ns = min((transfer.start_ns for transfer in transfers.transfers), default=0)

    def lives(self) -> Iterator[Life]:
        """Each sample that the index has had, with each put, get and clear, in time order."""
        life: Life | None = None
        node = 0
        for one in in_turn(self._transfers):
            if not self._is_of(one if isinstance(one, Clear) else self._transfers.transfers[one]):
                continue
            is_new = not isinstance(one, Clear) and self._is_new(one, node)
            if life is not None and (is_new or isinstance(one, Clear)):
                if isinstance(one, Clear):
                    life.events.append(Event(self._after_s(one.at_ns, life), "cleared"))
                yield life
                life = None
            if isinstance(one, Clear):
                node = 0
                continue
            transfer = self._transfers.transfers[one]
            life = life or Life((transfer.ready_ns - self._first_ns) / NS_PER_S)
            node = self._node_after(one, node, is_new, life)
        if life is not None:
            yield life

    def _is_new(self, place: int, node: int) -> bool:
        """Whether a sample begins with this transfer."""
        is_put = self._transfers.transfers[place].kind is Kind.PUT
        return is_put and (not node or (not self._is_exact and self._nodes.begins(node, place)))

    def _node_after(self, place: int, node: int, is_new: bool, life: Life) -> int:
        """Adds the transfer to the sample's life."""
        transfer = self._transfers.transfers[place]
        is_put = transfer.kind is Kind.PUT
        if is_put:
            node = self._nodes.after_put(0 if is_new else node, place)
        life.events.append(self._event(place, node, life, "created" if is_new else ""))
        life.step = life.step if transfer.step is None else transfer.step
        if not is_put and node and self._transfers.consumer_of(transfer) == self._last_consumer:
            node = self._nodes.after_last_get(node)
        return node

    def _is_of(self, held: Transfer | Clear) -> bool:
        """Whether the sample is in it; a clear without ranges takes the whole partition."""
        if held.partition != self._partition:
            return False
        if held.ranges is None:
            return isinstance(held, Clear)
        return any(first <= self._index < first + count for first, count in held.ranges)

    def _event(self, place: int, node: int, life: Life, what: str) -> Event:
        transfer = self._transfers.transfers[place]
        waited_s, fields = None, UNKNOWN if transfer.fields is None else ", ".join(sorted(transfer.fields))
        if transfer.kind is Kind.GET:
            puts = self._nodes.writers(node, transfer.fields)
            fields = self._written(puts, transfer.fields)
            if puts:
                waited_s = (transfer.start_ns - self._transfers.transfers[puts[0]].ready_ns) / NS_PER_S
        function = self._functions[place]
        return Event(
            self._after_s(transfer.ready_ns, life),
            what or ("put" if transfer.kind is Kind.PUT else "got"),
            waited_s,
            (transfer.end_ns - transfer.start_ns) / NS_PER_S,
            "" if function == transfer.process else function,
            transfer.process,
            fields,
        )

    def _after_s(self, at_ns: int, life: Life) -> float:
        return (at_ns - self._first_ns) / NS_PER_S - life.at_s

    def _written(self, puts: Sequence[int], wanted: frozenset[str] | None) -> str:
        """Who wrote what was got, field by field where these are known."""
        left, words = wanted, []
        for put in puts:
            made, by = self._transfers.transfers[put], self._functions[put]
            if left is None or made.fields is None:
                words.append(by)
                continue
            words.append(f"{', '.join(sorted(left & made.fields))}: {by}")
            left -= made.fields
        if left:
            words.append(f"{', '.join(sorted(left))}: {UNKNOWN}")
        return "; ".join(words) or UNKNOWN
