"""Rows and steps summed up: what a step is made of, by layer, kind of work, operator and module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flagscale_perf.profile.analysis.layers import Place, Places, ordered, within
from flagscale_perf.profile.analysis.operators import KINDS, kind_of
from flagscale_perf.profile.analysis.source import UNKNOWN, Frame, Profile, Rank
from flagscale_perf.profile.records import PARTS

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Cell:
    """One row of a rank, per step; times in nanoseconds.

    Attributes:
        rank: the rank's place in the profile.
        phase: part of the step, such as "forward".
        place: layer, or what the module is besides.
        module, op: as recorded; "" for none.
        part: path of the module in its layer.
        kind: of work, one of `operators.KINDS`.
        self_ns, total_ns, runs: for a step, on average.
        device_ns: None without a device.
        flops, moved_bytes: None where they are not known.
    """

    rank: int
    phase: str
    place: Place
    module: str
    op: str
    part: str
    kind: str
    self_ns: float
    total_ns: float
    runs: float
    device_ns: float | None
    flops: float | None
    moved_bytes: float | None

    @property
    def worked_ns(self) -> float:
        """Time of its kernels; of the host where there is no device."""
        return self.self_ns if self.device_ns is None else self.device_ns


@dataclass
class Amount:
    """Cells added up, per step of the mean rank among those that have the place.

    Attributes:
        self_ns: time of the host, what is called in turn aside; worked_ns: of the device where there is one.
        counted_ns: of the cells whose FLOPs are known; `moved_ns` of those whose bytes are.
        runs: how often.
        flops, moved_bytes: 0 where nothing is known.
    """

    self_ns: float = 0.0
    worked_ns: float = 0.0
    runs: float = 0.0
    flops: float = 0.0
    counted_ns: float = 0.0
    moved_bytes: float = 0.0
    moved_ns: float = 0.0

    def add(self, cell: Cell, share: float) -> None:
        """Adds a cell with this weight."""
        worked_ns = cell.worked_ns
        self.self_ns += share * cell.self_ns
        self.worked_ns += share * worked_ns
        self.runs += share * cell.runs
        if cell.flops is not None:
            self.flops += share * cell.flops
            self.counted_ns += share * worked_ns
        if cell.moved_bytes is not None:
            self.moved_bytes += share * cell.moved_bytes
            self.moved_ns += share * worked_ns


@dataclass(frozen=True)
class Books:
    """The parts of a mean profiled step; times in nanoseconds.

    Attributes:
        steps: how many.
        total: the step's time.
        parts: by the names in `PARTS`; they add up to the total. 0 for a part that no record has.
        rows: time of all rows together.
    """

    steps: int
    total: float
    parts: Mapping[str, float]
    rows: float

    @classmethod
    def mean(cls, books: Sequence[Books], weights: Sequence[int], steps: int) -> Books:
        """The mean of these books (at least one), by their weights, as the books of so many steps."""

        def mean(values: Iterable[float]) -> float:
            return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)

        return cls(
            steps,
            mean(one.total for one in books),
            {part: mean(one.parts[part] for one in books) for part in PARTS},
            mean(one.rows for one in books),
        )

    @classmethod
    def mixed(cls, kinds: Sequence[Books]) -> Books | None:
        """The mean step of several kinds of steps; None if there are none."""
        counts = [one.steps for one in kinds]
        return cls.mean(kinds, counts, sum(counts)) if sum(counts) else None

    @property
    def communication(self) -> float:
        """Time in collectives while the rank does nothing else."""
        return self.parts["communication"]

    @property
    def python(self) -> float:
        """Time between operators: in Python, and in autograd's engine."""
        return self.parts["host"] + self.parts["engine"]

    @property
    def residual(self) -> float:
        """Time in no row; may be negative."""
        return self.parts["residual"]

    @property
    def coverage(self) -> float | None:
        """Share of the step that the rows account for."""
        return 1 - abs(self.residual) / self.total if self.total else None

    def as_dict(self) -> dict[str, Any]:
        """The books as JSON-ready data, times in nanoseconds."""
        ends = {"rows": self.rows, "coverage": self.coverage}
        return {"steps": self.steps, "total": self.total} | dict(self.parts) | ends


@dataclass(frozen=True)
class PhaseSums:
    """The sums over steps of one kind.

    Attributes:
        phase: such as "train" or "decode".
        cells: the cells of all ranks.
        books: each rank's books, by its place in the profile, where it has such steps.
        titles: the titles of these ranks.
        busy_ns: time in which each rank's device ran at least one kernel; empty without devices.
    """

    phase: str
    cells: Sequence[Cell]
    books: dict[int, Books]
    titles: dict[int, str]
    busy_ns: dict[int, float] = field(default_factory=dict)

    @property
    def busy(self) -> float | None:
        """Busy time of the mean rank's device in a step; None without a device."""
        return sum(self.busy_ns.values()) / len(self.busy_ns) if self.busy_ns else None

    @property
    def mean(self) -> Books:
        """The mean over all ranks."""
        books = list(self.books.values())
        return Books.mean(books, [1] * len(books), max(one.steps for one in books))

    @property
    def places(self) -> Sequence[Place]:
        """The places, in model order."""
        return ordered(cell.place for cell in self.cells)

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of work that occur, in the order of the table; new ones last."""
        found = {cell.kind for cell in self.cells if cell.self_ns}
        return [*(kind for kind in KINDS if kind in found), *sorted(found.difference(KINDS))]

    @property
    def parts(self) -> Sequence[str]:
        """The parts of the step: "forward", "backward" ..."""
        return list(dict.fromkeys(cell.phase for cell in self.cells))

    def by(
        self, key: Callable[[Cell], Key], chosen: Callable[[Cell], bool] | None = None
    ) -> dict[Key, Amount]:
        """Amounts by a key, the most time first, per step of the mean rank over all ranks."""
        return self._added(key, chosen, lambda cell: 1 / len(self.books))

    def by_place(
        self, key: Callable[[Cell], Key], chosen: Callable[[Cell], bool] | None = None
    ) -> dict[Key, Amount]:
        """Per step of the mean rank that has the cell's place: each pipeline stage has its own."""
        ranks: dict[Place, set[int]] = defaultdict(set)
        for cell in self.cells:
            ranks[cell.place].add(cell.rank)
        return self._added(key, chosen, lambda cell: 1 / len(ranks[cell.place]))

    def _added(
        self,
        key: Callable[[Cell], Key],
        chosen: Callable[[Cell], bool] | None,
        share: Callable[[Cell], float],
    ) -> dict[Key, Amount]:
        made: dict[Key, Amount] = defaultdict(Amount)
        for cell in self.cells:
            if chosen is None or chosen(cell):
                made[key(cell)].add(cell, share(cell))
        return dict(sorted(made.items(), key=lambda item: -item[1].self_ns))


def sums_of(profile: Profile) -> dict[str, PhaseSums]:
    """Sums by kind of step, the one with the most time first; only kinds that were profiled."""
    places = Places(profile)
    made: dict[str, PhaseSums] = {}
    for phase in profile.phases():
        cells: list[Cell] = []
        books: dict[int, Books] = {}
        busy: dict[int, float] = {}
        for number, rank in enumerate(profile.ranks):
            steps = rank.profiled.where(rank.profiled["phase"] == phase)
            if len(steps):
                own = _cells(rank, number, phase, len(steps), places)
                books[number] = _books(steps, sum(cell.self_ns for cell in own))
                cells += own
                if (steps["device_busy_ns"] != UNKNOWN).all():
                    busy[number] = float(steps["device_busy_ns"].mean())
        titles = {number: profile.ranks[number].title for number in books}
        if books:
            made[phase] = PhaseSums(phase, cells, books, titles, busy)
    return made


def _books(steps: Frame, rows_ns: float) -> Books:
    count = len(steps)
    parts = {name: (steps.total(f"{name}_ns") or 0) / count for name in PARTS}
    return Books(count, (steps.total("total_ns") or 0) / count, parts, rows_ns)


def _cells(rank: Rank, number: int, phase: str, steps: int, places: Places) -> list[Cell]:
    rows = rank.rows.where(rank.rows["step_phase"] == phase)
    stage = rank.place.get("pipeline")
    known: dict[str, Place] = {}
    texts, numbers = ("phase", "module", "op", "sort"), ("self_ns", "total_ns", "runs")
    known_only = ("device_ns", "flops", "moved_bytes")
    made = []
    for part, module, op, sort, self_ns, total_ns, runs, *rest in zip(
        *(rows[name].tolist() for name in (*texts, *numbers, *known_only)), strict=True
    ):
        place = known.get(module)
        if place is None:
            place = known[module] = places.of(module, stage)
        kind = kind_of(op, part, module, sort)
        each = (self_ns / steps, total_ns / steps, runs / steps)
        others = (None if value == UNKNOWN else value / steps for value in rest)
        made.append(Cell(number, part, place, module, op, within(module), kind, *each, *others))
    return made
