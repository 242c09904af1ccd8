"""The cuts of ranks side by side: on a machine those of its own, where they are gathered all machines'."""

from __future__ import annotations

import heapq
from array import array
from base64 import b64decode, b64encode
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple, TypeAlias

from flagscale_perf.spine.averages import median
from flagscale_perf.training.ledger.cuts import CUTS, MAX_CUTS, MAX_NS, StepCuts
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rank_records import PHASE_BASE, CutsRecord
from flagscale_perf.training.work import UNKNOWN, WORK, usual_work

KEPT_UNITS = 8  # of which all rows are kept; of more units the latest ones at each cut
KEPT_RANKS = 64  # of a job, up to which each machine sends all rows
LATEST = 2
MAX_VALUES = 1000  # of one record's lists
MAX_SHOWN = 64  # ranks of a unit
USUAL = -1  # in place of a unit: medians of all, and the least wait
KINDS = len(WORK)
NO_WORK = (UNKNOWN,) * KINDS

Numbers: TypeAlias = "array[int]"  # of 8 bytes each
Units = Mapping[int, tuple[int, ...]]  # the ranks of each, by the number of the lockstep group


class Member(NamedTuple):
    """One rank of a stage in some steps.

    Attributes:
        lockstep: of the group that does every step together.
    """

    rank: int
    lockstep: int
    steps: Sequence[StepCuts]


class MachineCuts(NamedTuple):
    """Steps of a machine's units of a stage that have the same cuts, in arrays one behind the other: they are
    sent and checked at once, and cost the gathering process no object each.

    Attributes:
        stage, waits, columns: as in `CutsRecord`.
        iterations, units: of each step, and how many units the machine has.
        sizes: how many units have a row in each step.
        rows: the lockstep groups whose rows these are, step by step.
        own_ns: row by row, a value for each column. Where not all units have rows, behind these one more for
            each step: the medians of all.
        wait_ns: row by row, a value for each cut; in those behind, the least waits of all.
        work: row by row, a value for each kind of `WORK`; in those behind, the medians of all in which it is
            known. One row where all are alike.
    """

    stage: int
    waits: Numbers
    columns: Numbers
    iterations: Numbers
    units: Numbers
    sizes: Numbers
    rows: Numbers
    own_ns: Numbers
    wait_ns: Numbers
    work: Numbers

    @property
    def has_all(self) -> bool:
        """Whether every unit has a row in every step."""
        return len(self.own_ns) == len(self.rows) * len(self.columns)

    def work_of(self, row: int) -> Sequence[int]:
        """That of a row, or of a step's row behind all of these."""
        return self.work if len(self.work) == KINDS else self.work[row * KINDS : (row + 1) * KINDS]


class _Row(NamedTuple):
    """A unit in a step: a value for each column, for each cut, and for each kind of work."""

    unit: int
    own_ns: Sequence[int]
    wait_ns: Sequence[int]
    work: Sequence[int]


class _MachineStep(NamedTuple):
    """A step on a machine: the number of its units, the rows kept, and what is usual if these are not all."""

    iteration: int
    units: int
    rows: list[_Row]
    usual: list[_Row]


def machine_cuts(stage: int, members: Iterable[Member], keeps_all: bool) -> list[MachineCuts]:
    """The rows of the steps in which all units have the same cuts: all rows if it `keeps_all`, else those of
    the units that come last at a cut, and the usual row.
    """
    groups = {member.lockstep: member for member in sorted(members, reverse=True)}
    by_step: dict[int, dict[int, StepCuts]] = defaultdict(dict)
    for lockstep, member in sorted(groups.items()):
        for step in member.steps:
            by_step[step.iteration][lockstep] = step
    made: dict[tuple[tuple[int, ...], tuple[int, ...]], list[_MachineStep]] = defaultdict(list)
    for iteration, units in sorted(by_step.items()):
        shapes = {tuple(cut.phase for cut in step.cuts) for step in units.values()}
        if len(units) == len(groups) and len(shapes) == 1:
            (waits,), columns = shapes, _columns(units.values())
            made[waits, columns].append(_step_of(iteration, columns, units, keeps_all))
    return [_joined(stage, waits, columns, steps) for (waits, columns), steps in made.items()]


def _columns(steps: Iterable[StepCuts]) -> tuple[int, ...]:
    numbered = (pair for step in steps for pair in enumerate(step.cuts))
    return tuple(sorted({PHASE_BASE * number + phase for number, cut in numbered for phase in cut.own_ns}))


def _step_of(
    iteration: int, columns: Sequence[int], units: Mapping[int, StepCuts], keeps_all: bool
) -> _MachineStep:
    ways = [divmod(column, PHASE_BASE) for column in columns]
    rows = [
        _Row(
            unit,
            [step.cuts[cut].own_ns.get(phase, 0) for cut, phase in ways],
            [cut.wait_ns for cut in step.cuts],
            step.work or NO_WORK,
        )
        for unit, step in units.items()
    ]
    if keeps_all:
        return _MachineStep(iteration, len(units), rows, [])
    waits = list(zip(*(row.wait_ns for row in rows), strict=True))
    kept = dict.fromkeys(place for column in waits for place in _latest(column))
    own = zip(*(row.own_ns for row in rows), strict=True)
    work = usual_work(row.work for row in rows)
    usual = _Row(USUAL, [int(median(each)) for each in own], list(map(min, waits)), work)
    return _MachineStep(iteration, len(units), [rows[place] for place in kept], [usual])


def _joined(
    stage: int, waits: Sequence[int], columns: Sequence[int], steps: Sequence[_MachineStep]
) -> MachineCuts:
    rows = list(chain.from_iterable(step.rows for step in steps))
    every = [*rows, *chain.from_iterable(step.usual for step in steps)]
    works = [tuple(row.work) for row in every]
    return MachineCuts(
        stage,
        waits=array("q", waits),
        columns=array("q", columns),
        iterations=array("q", [step.iteration for step in steps]),
        units=array("q", [step.units for step in steps]),
        sizes=array("q", [len(step.rows) for step in steps]),
        rows=array("q", [row.unit for row in rows]),
        own_ns=array("q", chain.from_iterable(row.own_ns for row in every)),
        wait_ns=array("q", chain.from_iterable(row.wait_ns for row in every)),
        work=array("q", works[0] if len(set(works)) == 1 else chain.from_iterable(works)),
    )


def _latest(least_ns: Sequence[int]) -> list[int]:
    return heapq.nsmallest(LATEST, range(len(least_ns)), key=least_ns.__getitem__)


def encode(found: MachineCuts) -> list[Any]:
    """A list of JSON types: the arrays' lengths, then all arrays in one text."""
    packed = array("q", map(len, found[1:]))
    for each in found[1:]:
        packed.extend(each)
    return [found.stage, b64encode(packed.tobytes()).decode()]


def decode(content: Any) -> MachineCuts:
    """Reads what `encode` returned. Raises ValueError for anything else, from another version or damaged."""
    if type(content) is not list or tuple(map(type, content)) != (int, str):
        raise ValueError("not the cuts of a machine")
    stage, text = content
    numbers = array("q")
    numbers.frombytes(b64decode(text, validate=True))
    head = len(MachineCuts._fields) - 1
    ends = list(accumulate(numbers[:head], initial=head))
    if len(ends) <= head or sorted(ends) != ends or ends[-1] != len(numbers):
        raise ValueError("lists of a machine's steps that are not as long as they say")
    if not -MAX_NS <= min(numbers) <= max(numbers) <= MAX_NS:
        raise ValueError("numbers of a machine's steps that no JSON reader keeps")
    found = MachineCuts(stage, *(numbers[start:end] for start, end in pairwise(ends)))
    steps, rows = len(found.iterations), len(found.rows)
    every = rows if found.has_all else rows + steps
    expected = (steps, steps, rows, every * len(found.columns), every * len(found.waits))
    lengths = (*map(len, found[4:6]), sum(found.sizes), len(found.own_ns), len(found.wait_ns))
    is_work = len(found.work) in (KINDS, every * KINDS) and min(found.work) >= UNKNOWN
    if lengths != expected or min(found.sizes, default=1) < 1 or not (is_work and _is_shape(found)):
        raise ValueError("numbers of a machine's steps that do not belong together")
    return found


def _is_shape(found: MachineCuts) -> bool:
    columns, cuts = found.columns, len(found.waits)
    of_cuts = all(0 <= column < PHASE_BASE * cuts for column in columns)
    known = all(column % PHASE_BASE < len(PHASES) for column in columns)
    return 0 < cuts <= MAX_CUTS and len(columns) > 0 and CUTS.issuperset(found.waits) and of_cuts and known


def records_of(
    stage: int, machines: Iterable[MachineCuts], units: Units, suspects: AbstractSet[int]
) -> list[CutsRecord]:
    """One record for each step that the machines have with the same cuts; `suspects`: lockstep groups whose
    rows are kept in any case.
    """
    alike: dict[tuple[bytes, bytes, bytes, bool], list[MachineCuts]] = defaultdict(list)
    for each in machines:
        shape = each.waits.tobytes(), each.columns.tobytes(), each.iterations.tobytes(), each.has_all
        alike[shape].append(each)
    groups = [_Alike(found, suspects) for found in alike.values()]
    counts: Counter[int] = Counter()
    for group in groups:
        counts.update(dict.fromkeys(group.at, len(group.machines)))
    most = max(counts.values(), default=0)
    made: list[CutsRecord] = []
    for iteration in sorted(iteration for iteration, count in counts.items() if count == most):
        found = [group for group in groups if iteration in group.at]
        if all(group.waits == found[0].waits for group in found):
            made += _record_of(_Merged(iteration, found, len(units)), stage, units, suspects)
    return made


class _Alike:
    """Machines with the same steps, cuts and columns. What they say of a step is looked up side by side: of
    many machines, objects of each in each step would cost more than what is done with them.

    Attributes:
        holding: places of the machines that have rows of suspects.
        waits, columns, has_all: as theirs.
        at: place of each step, by its iteration.
    """

    def __init__(self, machines: Sequence[MachineCuts], suspects: AbstractSet[int]) -> None:
        first = machines[0]
        self.machines, self.waits, self.columns = machines, first.waits, first.columns
        self.has_all = first.has_all
        self.at = {iteration: number for number, iteration in enumerate(first.iterations)}
        self.holding = [at for at, each in enumerate(machines) if not suspects.isdisjoint(each.rows)]
        self._ends = [[0, *accumulate(each.sizes)] for each in machines]
        usual = [] if self.has_all else machines
        own = (each.own_ns[len(each.rows) * len(each.columns) :] for each in usual)
        waits = (each.wait_ns[len(each.rows) * len(each.waits) :] for each in usual)
        self._own_ns, self._wait_ns = list(zip(*own, strict=True)), list(zip(*waits, strict=True))

    def rows(self, machine: int, iteration: int, columns: Numbers) -> Iterator[_Row]:
        found, ends, at = self.machines[machine], self._ends[machine], self.at[iteration]
        mine, cuts = len(found.columns), len(found.waits)
        place = {column: number for number, column in enumerate(found.columns)}
        for row in range(ends[at], ends[at + 1]):
            own_ns: Sequence[int] = found.own_ns[row * mine : (row + 1) * mine]
            if found.columns != columns:
                own_ns = [own_ns[place[each]] if each in place else 0 for each in columns]
            wait_ns = found.wait_ns[row * cuts : (row + 1) * cuts]
            yield _Row(found.rows[row], own_ns, wait_ns, found.work_of(row))

    def usual_ns(self, iteration: int, columns: Numbers) -> list[Sequence[int]]:
        """For each column the usual time of each machine; if all units were kept, the time of each unit."""
        if self.has_all:
            every = (self.rows(at, iteration, columns) for at in range(len(self.machines)))
            return list(zip(*(row.own_ns for rows in every for row in rows), strict=True))
        first, none = self.at[iteration] * len(self.columns), (0,) * len(self.machines)
        found = {column: self._own_ns[first + number] for number, column in enumerate(self.columns)}
        return [found.get(column, none) for column in columns]

    def least_ns(self, iteration: int) -> list[Sequence[int]]:
        if self.has_all:
            every = (self.rows(at, iteration, self.columns) for at in range(len(self.machines)))
            least = (map(min, zip(*(row.wait_ns for row in rows), strict=True)) for rows in every)
            return list(zip(*least, strict=True))
        first = self.at[iteration] * len(self.waits)
        return list(self._wait_ns[first : first + len(self.waits)])

    def usual_work(self, iteration: int) -> list[Sequence[int]]:
        """What is usual on each machine; if all units were kept, the work of each unit."""
        if self.has_all:
            every = (self.rows(at, iteration, self.columns) for at in range(len(self.machines)))
            return [row.work for rows in every for row in rows]
        return [each.work_of(len(each.rows) + self.at[iteration]) for each in self.machines]


class _Merged:
    """A step of several machines, as one.

    Attributes:
        iteration, units: of the step, all machines together. A unit may be on several of them: rank 0 is
            gathered apart from the other ranks of its machine, and the ranks of a unit have the same row.
        waits, columns: of all machines.
    """

    def __init__(self, iteration: int, found: Sequence[_Alike], most_units: int) -> None:
        count = sum(each.units[group.at[iteration]] for group in found for each in group.machines)
        self.iteration, self.units = iteration, min(most_units, count)
        self.waits = found[0].waits
        self.columns = found[0].columns
        if any(group.columns != self.columns for group in found):
            self.columns = array("q", sorted({column for group in found for column in group.columns}))
        self._found = found
        self._machines = [(group, at) for group in found for at in range(len(group.machines))]

    def kept(self, suspects: AbstractSet[int]) -> list[_Row]:
        """All rows of few units; of many, the suspects', the latest at each cut, and the usual row."""
        if self.units <= KEPT_UNITS and all(group.has_all for group in self._found):
            every = {row.unit: row for group, at in self._machines[::-1] for row in self._rows(group, at)}
            return [every[unit] for unit in sorted(every)]
        least_ns = _side_by_side(group.least_ns(self.iteration) for group in self._found)
        usual_ns = _side_by_side(group.usual_ns(self.iteration, self.columns) for group in self._found)
        work = usual_work(row for group in self._found for row in group.usual_work(self.iteration))
        usual = _Row(USUAL, [int(median(each)) for each in usual_ns], list(map(min, least_ns)), work)
        most = max(1, MAX_VALUES // (len(self.columns) + len(self.waits)) - 1)
        return [*self._noted(suspects, least_ns)[:most], usual]

    def _noted(self, suspects: AbstractSet[int], least_ns: Sequence[Sequence[int]]) -> list[_Row]:
        held = [(group, at) for group in self._found for at in group.holding]
        rows = (row for group, at in held[::-1] for row in self._rows(group, at))
        found = {row.unit: row for row in rows if row.unit in suspects}
        kept = dict.fromkeys(sorted(found))
        for cut, of_machines in enumerate(least_ns):
            for number in _latest(of_machines):
                found = {row.unit: row for row in self._rows(*self._machines[number])} | found
            latest = heapq.nsmallest(LATEST, found.values(), key=lambda row: row.wait_ns[cut])
            kept |= dict.fromkeys(row.unit for row in latest)
        return [found[unit] for unit in kept]

    def _rows(self, group: _Alike, machine: int) -> Iterator[_Row]:
        return group.rows(machine, self.iteration, self.columns)


def _side_by_side(groups: Iterable[list[Sequence[int]]]) -> list[list[int]]:
    return [[ns for values in column for ns in values] for column in zip(*groups, strict=True)]


def _record_of(step: _Merged, stage: int, units: Units, suspects: AbstractSet[int]) -> Iterator[CutsRecord]:
    """None where a unit is alone, or there are too many columns."""
    kept = step.kept(suspects) if step.units > 1 else []
    if not kept or len(kept) * max(len(step.columns), len(step.waits)) > MAX_VALUES:
        return
    ranks = [units.get(row.unit, ())[:MAX_SHOWN] for row in kept]
    work = [value for row in kept for value in row.work]
    yield CutsRecord(
        iteration=step.iteration,
        stage=stage,
        units=step.units,
        waits=list(step.waits),
        columns=list(step.columns),
        ranks=[rank for each in ranks for rank in each],
        sizes=list(map(len, ranks)),
        own_ns=[value for row in kept for value in row.own_ns],
        wait_ns=[value for row in kept for value in row.wait_ns],
        work=work if max(work) > UNKNOWN else None,
    )
