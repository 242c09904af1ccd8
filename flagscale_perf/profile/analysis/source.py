"""Where a profile is read from: the run files of one job as columns, rank by rank, with names for numbers.

profile = read_profile(path)
for rank in profile.ranks:
    slow = rank.rows.where(rank.rows["self_ns"] > 1_000_000)
    print(rank.title, slow["module"], slow["op"])
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flagscale_perf.analysis.job import Clocks, clock_of
from flagscale_perf.analysis.run_file import Reading, RunFile, SkippedLine, mates_of
from flagscale_perf.profile.records import (
    NAMES,
)
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import fields_of
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.reading import Block
from flagscale_perf.spine.records import KILLED, EventRecord, RunEnd, RunHeader, kind_of

INSTRUMENT_NAME, RUNNING = "profile", "running"
UNKNOWN = int(np.iinfo(np.int64).min)  # in a column of integers, where the record has None
TIMES = ("start_ns",)  # monotonic marks; those of other machines are put on the first one's clock
MAX_EVENTS = 20
Column = NDArray[Any]


class Frame:
    """Records of one type, a column for each field: integers, `UNKNOWN` where a record has None, and texts of
    fields that are names.
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.columns = dict(columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def where(self, chosen: Column) -> Frame:
        """The records selected by a mask, or by indexes in the order wanted."""
        return Frame({name: column[chosen] for name, column in self.columns.items()})

    def known(self, name: str) -> Column:
        """A mask: where the field is known."""
        found: Column = self.columns[name] != UNKNOWN
        return found

    def floats(self, name: str) -> Column:
        """The field as floats, NaN where it is unknown."""
        column = self.columns[name]
        made: Column = np.where(column == UNKNOWN, np.nan, column.astype(np.float64))
        return made

    def total(self, name: str) -> int | None:
        """The sum of the known values of a field; None if none is known."""
        known = self.columns[name][self.known(name)]
        return int(known.sum()) if len(known) else None

    def records(self) -> Iterator[dict[str, Any]]:
        """One by one, None where a field is not known."""
        names = list(self.columns)
        for values in zip(*(column.tolist() for column in self.columns.values()), strict=True):
            yield {
                name: None if value == UNKNOWN else value for name, value in zip(names, values, strict=True)
            }


@dataclass(frozen=True)
class Rank:
    """What one process recorded.

    Attributes:
        title: `rank 3`, or what the process is called where it has said no more.
        place: fields of its `RankRecord`, None where they are not known; empty where none came.
        clock: ranks with the same one have their marks from one clock: a start of a machine.
        directory: of the run file.
        offset_ns: that was added to its marks.
        steps, rows, collectives, memory, windows, roofs, delays: its records.
    """

    title: str
    place: Mapping[str, Any]
    clock: str
    directory: Path
    offset_ns: int
    steps: Frame
    rows: Frame
    collectives: Frame
    memory: Frame
    windows: Frame
    roofs: Frame
    delays: Frame

    @property
    def rank(self) -> int:
        """Its rank in the job; -1 if unknown."""
        return int(self.place.get("rank", -1))

    @property
    def profiled(self) -> Frame:
        """Its profiled steps."""
        return self.steps.where(self.steps["is_profiled"] == 1)

    @property
    def clean(self) -> Frame:
        """Its steps without a profiler."""
        return self.steps.where(self.steps["is_profiled"] == 0)


@dataclass(frozen=True)
class Profile:
    """The profile of one job.

    Attributes:
        path: of the run file that was given.
        header: of that.
        ranks: by their rank.
        state: how the run ended.
        reading: of all files together.
        events: what the profiler says of itself.
        lost: records that did not come, as far as their numbers say.
        machines: whose files were read.
    """

    path: Path
    header: RunHeader
    ranks: Sequence[Rank]
    state: str
    reading: Reading
    events: Sequence[str]
    lost: int
    machines: Sequence[str]

    def phases(self) -> list[str]:
        """The kinds of steps that were profiled, the one with the most time first."""
        times: Counter[str] = Counter()
        for rank in self.ranks:
            steps = rank.profiled
            for phase, total in zip(steps["phase"], steps["total_ns"], strict=True):
                times[str(phase)] += int(total)
        return [phase for phase, _ in times.most_common()]


def read_profile(path: Path) -> Profile:
    """Reads the run file, and those of other machines of the same job at the same time. Raises PerfError."""
    paths = [path, *mates_of(path)]
    readers = [_Reader(each) for each in paths]
    for reader in readers:
        reader.read()
    first = readers[0].header
    clocks = Clocks(first)
    ranks = [rank for reader in readers for rank in reader.ranks(clocks.offset_ns(reader.header))]
    states = [reader.state for reader in readers]
    bad = [SkippedLine(line.number, line.reason) for reader in readers for line in reader.run.bad_lines]
    kinds: Counter[str] = sum((reader.kinds for reader in readers), Counter())
    return Profile(
        path=path,
        header=first,
        ranks=sorted(ranks, key=lambda rank: (rank.rank < 0, rank.rank, rank.title)),
        state=next((state for state in states if state != "completed"), states[0]),
        reading=Reading(str(path), dict(kinds), sum(reader.run.skipped for reader in readers), bad),
        events=[event for reader in readers for event in reader.events][:MAX_EVENTS],
        lost=sum(reader.lost for reader in readers),
        machines=list(dict.fromkeys(str(reader.header.host) for reader in readers)),
    )


@dataclass
class _Reader:
    """Collects the records of one run file."""

    path: Path
    kinds: Counter[str] = field(default_factory=Counter)
    events: list[str] = field(default_factory=list)
    state: str = ""
    lost: int = 0

    def __post_init__(self) -> None:
        self.run = RunFile(self.path)
        self.header = self.run.header
        self._titles: dict[int, str] = {}
        self._lost: dict[int, int] = {}
        self._names: dict[int, dict[int, str]] = defaultdict(lambda: {0: ""})
        self._columns: dict[type, list[list[Any]]] = {each: [[] for _ in fields_of(each)] for each in NAMES}

    def read(self) -> None:
        """Reads the whole file."""
        for block in self.run.blocks():
            if isinstance(block, Block) and block.type in self._columns:
                self.kinds[block.type.__name__] += len(block.columns[0])
                for kept, column in zip(self._columns[block.type], block.columns, strict=True):
                    kept.extend(column)
            else:
                for record in block.records() if isinstance(block, Block) else (block,):
                    self._add(record)
        self.state = self.state or (RUNNING if self.run.is_live() else KILLED)
        self.lost += sum(self._lost.values())

    def _add(self, record: Any) -> None:
        self.kinds[type(record).__name__] += 1
        columns = self._columns.get(type(record))
        if columns is not None:
            for kept, value in zip(columns, record, strict=True):
                kept.append(value)
            return
        match record:
            case NameRecord():
                self._names[record.process][record.number] = record.text
            case ProcessRecord():
                self._titles[record.number] = record.title
                self._lost[record.number] = record.lost or 0
            case EventRecord() if len(self.events) < MAX_EVENTS:
                self.events.append(f"{record.name}: {record.text}")
            case RunEnd():
                self.state = record.reason
                self.lost += record.dropped

    def ranks(self, offset_ns: int) -> Iterator[Rank]:
        """Every process that recorded something."""
        frames = {each: self._frames(each, offset_ns) for each in NAMES}
        processes = sorted({*self._titles, *(process for one in frames.values() for process in one)})
        for process in processes:
            parts = [frames[each].get(process) or _empty(each) for each in NAMES]
            place = next(iter(parts[0].records()), {})
            title = f"rank {place['rank']}" if place else self._titles.get(process, f"process {process}")
            yield Rank(title, place, clock_of(self.header), self.path.parent, offset_ns, *parts[1:])

    def _frames(self, record_type: Any, offset_ns: int) -> dict[int, Frame]:
        """The records as frames, by process."""
        values = self._columns[record_type]
        try:
            columns = {
                name: np.array([UNKNOWN if value is None else value for value in column], dtype=np.int64)
                for name, column in zip(record_type._fields, values, strict=True)
            }
        except OverflowError:
            kind = kind_of(record_type)
            raise PerfError(
                f"'{self.path}': a {kind} record has a number that no measurement makes"
            ) from None
        if offset_ns:
            for name in TIMES:
                if name in columns:
                    columns[name] = columns[name] + offset_ns
        whole = Frame(columns)
        return {
            int(process): self._named(record_type, int(process), whole.where(columns["process"] == process))
            for process in np.unique(columns["process"])
        }

    def _named(self, record_type: Any, process: int, frame: Frame) -> Frame:
        names = self._names[process]
        for each in NAMES[record_type]:
            column = frame.columns[each].tolist()
            frame.columns[each] = _texts(names.get(number, f"name {number}") for number in column)
        return frame


def _texts(values: Iterable[str]) -> Column:
    found = list(values)
    made: Column = np.empty(len(found), dtype=object)
    made[:] = found
    return made


def _empty(record_type: Any) -> Frame:
    return Frame({
        name: np.empty(0, dtype=object if name in NAMES[record_type] else np.int64)
        for name in record_type._fields
    })  # fmt: skip
