"""Joins every field of each consumed sample to the put that wrote it, by partition, index, fields and time.

If clears of a partition are recorded, a clear ends the life of an index; otherwise puts and gets, which are
taken in time order, tell where a new one begins (`lives`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from flagscale_perf.spine.averages import mean_counted
from flagscale_perf.trace.analysis.latest import Late, Latest
from flagscale_perf.trace.analysis.lives import Indexes, Nodes, Piece, cleared_exactly, in_turn
from flagscale_perf.trace.analysis.steps import Steps
from flagscale_perf.trace.analysis.transfers import Clear, Transfer, Transfers, can_have
from flagscale_perf.trace.records import Kind
from flagscale_perf.trace.spread import Spread


@dataclass
class Flow:
    """Samples of which one function put fields that another got. Times in nanoseconds.

    Attributes:
        samples: of them.
        residence: from when these fields were there until the get began.
        steps: by how many steps of the last consumer ended in between: samples; empty for other consumers.
    """

    samples: int = 0
    residence: Spread = field(default_factory=Spread)
    steps: Counter[int] = field(default_factory=Counter)

    @property
    def mean_steps(self) -> float | None:
        """None if the steps are unknown."""
        return mean_counted(self.steps)


@dataclass
class Holder:
    """A process whose puts batches waited for.

    Attributes:
        batches: got with samples of it and of other processes.
        last: those of which its samples came last.
        held: of these, how long after those of the process before it, in nanoseconds.
    """

    batches: int = 0
    last: int = 0
    held: Spread = field(default_factory=Spread)


@dataclass
class LastConsumer:
    """The function that gets most samples for the last time.

    Attributes:
        name: empty where there is none.
        age: of its samples, from the first put of their life, in steps.
        by_step: of its steps in order, mean age and oldest.
        depth: time and how many samples are waiting for it from then on.
        taken: samples that it has got, each once.
        latest: those that took longest from their first put until it had them.
        behind: by how many steps the oldest weights that made a put are behind its step: samples.
    """

    name: str = ""
    age: Counter[int] = field(default_factory=Counter)
    by_step: list[tuple[int, float, int]] = field(default_factory=list)
    depth: list[tuple[int, int]] = field(default_factory=list)
    taken: int = 0
    latest: list[Late] = field(default_factory=list)
    behind: Counter[int] = field(default_factory=Counter)

    @property
    def mean_age(self) -> float | None:
        """Mean age in steps; None if no ages are known."""
        return mean_counted(self.age)


@dataclass
class Lineage:
    """The result of the join.

    Attributes:
        consumed: samples got, whose indexes are known.
        joined: of these, with a put of what was got.
        unknown: samples got whose indexes were not recorded, or not all of them.
        negative: joined, but got before their put was done, by the clocks.
        worst_ns: the farthest before it.
        residence: of all joined samples, from when the last of what was got was there.
        flows: by (function that put, function that got).
        puts_per_get, processes_per_get: that put the last of what a get has of its samples.
        holders: by process.
        last: the function that samples are made for.
        born: samples that were put, by the function of their first put.
        cleared: of these, taken out of the queue before the last consumer had them.
        left: of these, in the queue at the end, and not had by the last consumer.
        left_out: operations that were too many.
    """

    consumed: int = 0
    joined: int = 0
    unknown: int = 0
    negative: int = 0
    worst_ns: int = 0
    residence: Spread = field(default_factory=Spread)
    flows: dict[tuple[str, str], Flow] = field(default_factory=lambda: defaultdict(Flow))
    puts_per_get: Spread = field(default_factory=Spread)
    processes_per_get: Spread = field(default_factory=Spread)
    holders: dict[str, Holder] = field(default_factory=lambda: defaultdict(Holder))
    last: LastConsumer = field(default_factory=LastConsumer)
    born: Counter[str] = field(default_factory=Counter)
    cleared: int = 0
    left: int = 0
    left_out: int = 0

    @property
    def made(self) -> int:
        """Samples that were put."""
        return self.born.total()

    @property
    def joined_share(self) -> float | None:
        """None if nothing was got."""
        return self.joined / self.consumed if self.consumed else None

    def as_dict(self) -> dict[str, Any]:
        """Its content as JSON-ready data."""
        return {
            "consumed": self.consumed,
            "joined": self.joined,
            "indexes_unknown": self.unknown,
            "negative": self.negative,
            "most_negative_ns": self.worst_ns,
            "residence_ns": self.residence.as_dict(),
            "puts_per_get": self.puts_per_get.as_dict(),
            "processes_per_get": self.processes_per_get.as_dict(),
            "last_consumer": self.last.name or None,
            "age_in_steps": {str(age): samples for age, samples in sorted(self.last.age.items())},
            "flows": [
                {
                    "from": source,
                    "to": target,
                    "samples": flow.samples,
                    "residence_ns": flow.residence.as_dict(),
                    "steps": {str(steps): samples for steps, samples in sorted(flow.steps.items())},
                }
                for (source, target), flow in self.flows.items()
            ],
            "holders": {
                name: {"batches": one.batches, "last": one.last, "held_ns": one.held.as_dict()}
                for name, one in self.holders.items()
            },
            "made": self.made,
            "never_consumed": {"cleared": self.cleared, "left": self.left},
            "operations_left_out": self.left_out,
            "latest": [one.as_dict() for one in self.last.latest],
        }


class _Join:
    def __init__(self, transfers: Transfers, each: Callable[[int, int, int], None]) -> None:
        self._transfers, self._all, self._each = transfers, transfers.transfers, each
        self._functions = [transfers.function_of(transfer) for transfer in self._all]
        self._consumers = [transfers.consumer_of(transfer) for transfer in self._all]
        self._turns = list(in_turn(transfers))
        self._exact = cleared_exactly(transfers)
        self.found = Lineage(left_out=transfers.left_out)
        self.found.last.name = self._last_consumer()
        self._steps = Steps(transfers, self.found.last.name)
        self._nodes, self._indexes = Nodes(self._all, self._functions), Indexes()
        self._waiting: dict[tuple[str, int], int] = {}  # got, but of no put so far
        self._by_step: dict[int, list[float]] = {}
        self._latest = Latest(transfers.began_ns)

    def _last_consumer(self) -> str:
        """The function that is the last to get most samples: before they are cleared if any are, as a run may
        end between two consumers; otherwise before the end.
        """
        indexes, names = Indexes(), list(dict.fromkeys(self._consumers))
        numbers = {name: place for place, name in enumerate(names, 1)}
        ended: Counter[int] = Counter()
        for one in self._turns:
            if isinstance(one, Clear):
                for piece in indexes.pieces(one):
                    ended.update(piece.read())
                    piece.write([0] * len(piece.places))
            elif self._all[one].kind is Kind.GET:
                number = numbers[self._consumers[one]]
                for piece in indexes.pieces(self._all[one]):
                    piece.write([number] * len(piece.places))
        del ended[0]
        last = (ended or indexes.counted()).most_common(1)
        return names[last[0][0] - 1] if last else ""

    def run(self) -> Lineage:
        # In the order in which they were done, by the clocks (`lives.in_turn`). The steps are summed up last,
        # as a put that the clocks place after its get still counts in the step of that get (`_join_late`).
        for one in self._turns:
            if isinstance(one, Clear):
                self._clear(one)
            elif self._all[one].kind is Kind.PUT:
                self._put(one)
            else:
                self._get(one)
        self.found.left = self._unconsumed(self._indexes.counted())
        for step in sorted(self._by_step):
            samples, ages, oldest = self._by_step[step]
            self.found.last.by_step.append((step, ages / samples, int(oldest)))
        self.found.last.latest = self._latest.found
        self.found.flows = dict(self.found.flows)
        self.found.holders = dict(self.found.holders)
        return self.found

    def _clear(self, clear: Clear) -> None:
        # Gets that still wait for a put at these places are forgotten: the next put there begins another
        # sample, which they cannot have got.
        counts: Counter[int] = Counter()
        for piece in self._indexes.pieces(clear):
            counts.update(piece.read())
            piece.write([0] * len(piece.places))
            if self._waiting:
                for at in piece.places:
                    self._waiting.pop((clear.partition, piece.base + at), None)
        gone = self._unconsumed(counts)
        self.found.cleared += gone
        if gone:
            self.found.last.depth.append((clear.at_ns, -gone))

    def _unconsumed(self, counts: Counter[int]) -> int:
        return sum(count for node, count in counts.items() if node and not self._nodes.is_over[node])

    def _put(self, place: int) -> None:
        transfer, made, born = self._all[place], dict[int, int](), 0
        fresh = 0  # node of those whose life begins, all alike
        is_exact = transfer.partition in self._exact
        for piece in self._indexes.pieces(transfer):
            before = piece.read()
            counts = Counter(before)
            for node, count in counts.items():
                if not node or not is_exact and self._nodes.begins(node, place):
                    made[node] = fresh = fresh or self._nodes.after_put(0, place)
                    born += count
                elif node not in made:
                    made[node] = self._nodes.after_put(node, place)
            if len(counts) == 1:
                piece.write([made[before[0]]] * len(before))
            else:
                piece.write([made[node] for node in before])
            if self._waiting:
                self._join_late(transfer.partition, piece, place)
        if born:
            self.found.born[self._functions[place]] += born
            self.found.last.depth.append((transfer.ready_ns, born))

    def _join_late(self, partition: str, piece: Piece, put: int) -> None:
        """Joins samples of this put that, by the clocks, were got before it was done."""
        late: Counter[tuple[int, int]] = Counter()
        for at, node in zip(piece.places, piece.read(), strict=True):
            get = self._waiting.get((partition, piece.base + at))
            if get is None:
                continue
            if not can_have(self._all[get], self._all[put]):
                del self._waiting[partition, piece.base + at]
            elif self._nodes.writers(node, self._all[get].fields):
                del self._waiting[partition, piece.base + at]
                late[get, node] += 1
        for (get, node), count in late.items():
            self._joined(get, node, count)

    def _get(self, place: int) -> None:
        transfer, found = self._all[place], self.found
        if transfer.ranges is None:
            found.unknown += transfer.rows
            return
        is_last = self._consumers[place] == found.last.name
        nodes: Counter[int] = Counter()
        places: dict[int, tuple[int, int]] = {}
        for piece in self._indexes.pieces(transfer):
            counts = Counter(piece.read())
            nodes.update(counts)
            self._await_puts(place, piece, counts)
            if is_last:
                self._take(piece, counts, places)
        found.consumed += sum(count for _, count in transfer.ranges)
        last = {node: self._joined(place, node, count) for node, count in nodes.items()}
        if is_last:
            self._used(place, nodes, places, last)
        if made := {put for put in last.values() if put is not None}:
            self._fan_in(transfer, made)

    def _take(self, piece: Piece, counts: Counter[int], places: dict[int, tuple[int, int]]) -> None:
        """The last consumer has had these. Adds the first and the last index of each node to `places`."""
        held = piece.read()
        for node in counts:
            first, end = held.index(node), len(held) - held[::-1].index(node) - 1
            found = piece.base + piece.places[first], piece.base + piece.places[end]
            before = places.get(node, found)
            places[node] = min(before[0], found[0]), max(before[1], found[1])
        over = {node: self._nodes.after_last_get(node) if node else 0 for node in counts}
        piece.write([over[node] for node in held])

    def _used(
        self,
        get: int,
        nodes: Counter[int],
        places: Mapping[int, tuple[int, int]],
        puts: Mapping[int, int | None],
    ) -> None:
        """Keeps what the last consumer got for the first time: how much, and the latest of it."""
        used, last = self._all[get], self.found.last
        fresh = {node: count for node, count in nodes.items() if node and not self._nodes.is_over[node]}
        if taken := sum(fresh.values()):
            last.taken += taken
            last.depth.append((used.start_ns, -taken))
        for node, count in fresh.items():
            if (put := puts[node]) is not None:
                first_ns = self._all[self._nodes.first[node]].ready_ns
                times = first_ns, self._all[put].ready_ns, used.start_ns
                where = used.partition, *places[node], count
                self._latest.add(Late(*where, *times, self._steps.number(used), self._functions[put]))

    def _await_puts(self, get: int, piece: Piece, nodes: Iterable[int]) -> None:
        """Keeps the get for samples that no put is known of so far, by their nodes."""
        partition, fields = self._all[get].partition, self._all[get].fields
        unmade = {node for node in nodes if not self._nodes.writers(node, fields)}
        for at, node in zip(piece.places, piece.read(), strict=True) if unmade else ():
            if node in unmade:
                self._waiting[partition, piece.base + at] = get

    def _joined(self, place: int, node: int, count: int) -> int | None:
        """Joins samples of a get; returns the put after which they had all that was got, None if no put is
        known.
        """
        get, found = self._all[place], self.found
        puts = self._nodes.writers(node, get.fields)
        if not puts:
            return None
        is_last = self._consumers[place] == found.last.name
        weight = count * get.weight
        found.joined += count
        for put in puts:
            made = self._all[put]
            self._each(place, put, count)
            flow = found.flows[self._functions[put], self._functions[place]]
            flow.samples += count
            flow.residence.add(max(0, get.start_ns - made.ready_ns), weight)
            if is_last:
                flow.steps[self._steps.between(made, get)] += count
            if is_last and made.versions is not None and get.step is not None:
                found.last.behind[get.step - made.versions[0]] += count
        stayed_ns = get.start_ns - self._all[puts[0]].ready_ns
        if stayed_ns < 0:
            found.negative += count
            found.worst_ns = min(found.worst_ns, stayed_ns)
        found.residence.add(max(0, stayed_ns), weight)
        if is_last:
            self._aged(get, self._all[self._nodes.first[node]], count)
        return puts[0]

    def _aged(self, get: Transfer, first: Transfer, count: int) -> None:
        age = self._steps.between(first, get)
        self.found.last.age[age] += count
        step = self._by_step.setdefault(self._steps.number(get), [0.0, 0.0, 0.0])
        step[0] += count
        step[1] += age * count
        step[2] = max(step[2], age)

    def _fan_in(self, get: Transfer, puts: Set[int]) -> None:
        ready: dict[str, int] = {}
        for put in puts:
            made = self._all[put]
            ready[made.process] = max(ready.get(made.process, 0), made.ready_ns)
        self.found.puts_per_get.add(len(puts), get.weight)
        self.found.processes_per_get.add(len(ready), get.weight)
        if len(ready) < 2:
            return
        for process in ready:
            self.found.holders[process].batches += 1
        (before_ns, _), (last_ns, last) = sorted((at_ns, name) for name, at_ns in ready.items())[-2:]
        self.found.holders[last].last += 1
        self.found.holders[last].held.add(last_ns - before_ns, get.weight)


def _nothing(get: int, put: int, samples: int) -> None:
    pass


def join(transfers: Transfers, each: Callable[[int, int, int], None] = _nothing) -> Lineage:
    """The lineage of the samples that were got. `each` is called with a get, a put before it (indexes into
    `Transfers.transfers`) and a number of samples; for one pair possibly several times.
    """
    return _Join(transfers, each).run()
