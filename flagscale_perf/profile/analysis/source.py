"""Reads a profile: the run files of one job as columns, rank by rank, with names for numbers.

profile = read_profile(open_session(path))
for rank in profile.ranks:
    slow = rank.rows.where(rank.rows["self_ns"] > 1_000_000)
    print(rank.title, slow["module"], slow["op"])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flagscale_perf.analysis.clocks import Move, clock_of
from flagscale_perf.analysis.session import Session
from flagscale_perf.profile.calls import Calls
from flagscale_perf.profile.records import NAMES
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.records import kind_of
from flagscale_perf.store.decoder import Chunk

UNKNOWN = int(np.iinfo(np.int64).min)  # in a column of integers, where the record has None
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

    def total(self, name: str) -> int | None:
        """The sum of the known values of a field; None if none is known."""
        known = self.columns[name][self.known(name)]
        return int(known.sum()) if len(known) else None

    def records(self) -> Iterator[dict[str, Any]]:
        """The records one by one, None where a field is not known."""
        names = list(self.columns)
        for values in zip(*(column.tolist() for column in self.columns.values()), strict=True):
            yield {
                name: None if value == UNKNOWN else value for name, value in zip(names, values, strict=True)
            }


@dataclass(frozen=True)
class Rank:
    """The records of one process.

    Attributes:
        title: `rank 3`, or the process's title where its rank is unknown.
        place: fields of its `RankRecord`, None where not known; empty without such a record.
        clock: the same for ranks whose marks are from one clock: one start of one machine.
        directory: where the run file is.
        move: brings its marks onto the first file's clock; None where they are on it.
        steps, rows, collectives, memory, windows, roofs, begins: its records.
    """

    title: str
    place: Mapping[str, Any]
    clock: str
    directory: Path
    move: Move | None
    steps: Frame
    rows: Frame
    collectives: Frame
    memory: Frame
    windows: Frame
    roofs: Frame
    begins: Frame

    @property
    def rank(self) -> int:
        """Its rank in the job; -1 if unknown."""
        return int(self.place.get("rank", -1))

    @property
    def profiled(self) -> Frame:
        """The rank's profiled steps."""
        return self.steps.where(self.steps["is_profiled"] == 1)

    @property
    def clean(self) -> Frame:
        """The rank's steps without a profiler."""
        return self.steps.where(self.steps["is_profiled"] == 0)


@dataclass(frozen=True)
class Profile:
    """The profile of one job.

    Attributes:
        session: its run files, which have been read.
        ranks: by their rank.
    """

    session: Session
    ranks: Sequence[Rank]

    @property
    def lost(self) -> int:
        """Records that did not come, as far as their numbers say."""
        return self.session.course.dropped + self.session.course.lost

    def phases(self) -> list[str]:
        """The kinds of steps that were profiled, the one with the most time first."""
        times: Counter[str] = Counter()
        for rank in self.ranks:
            steps = rank.profiled
            for phase, total in zip(steps["phase"], steps["total_ns"], strict=True):
                times[str(phase)] += int(total)
        return [phase for phase, _ in times.most_common()]

    def span(self, phase: str) -> tuple[int | None, int | None]:
        """First and last iteration of the profiled steps of this kind; None where the host counts none."""
        known = [
            int(number)
            for steps in (rank.profiled for rank in self.ranks)
            for number in steps["iteration"][steps["phase"] == phase]
            if number != UNKNOWN
        ]
        return (min(known), max(known)) if known else (None, None)


def read_profile(session: Session) -> Profile:
    """Reads the run files of all machines. Raises PerfError."""
    types: Sequence[Any] = list(NAMES)
    columns: dict[Any, list[list[Any]]] = {each: [[] for _ in each._fields] for each in types}
    for part in session.chunks({*types}):
        if isinstance(part, Chunk):
            for each, found in part.columns.items():
                for kept, column in zip(columns[each], found, strict=True):
                    kept.extend(column)
    frames = {each: _frames(session, each, columns[each]) for each in NAMES}
    processes = sorted({*session.course.processes, *(process for one in frames.values() for process in one)})
    ranks = [_rank(session, process, [frames[each].get(process) for each in NAMES]) for process in processes]
    return Profile(session, sorted(ranks, key=lambda rank: (rank.rank < 0, rank.rank, rank.title)))


def _rank(session: Session, process: int, frames: Sequence[Frame | None]) -> Rank:
    parts = [found or _empty(each) for each, found in zip(NAMES, frames, strict=True)]
    (file, number), known = session.origin(process), session.course.processes.get(process)
    place = next(iter(parts[0].records()), {})
    title = f"rank {place['rank']}" if place else known.title if known else f"process {number}"
    clock = clock_of(file.header)
    return Rank(title, place, clock, file.path.parent, session.clocks.mover(clock), *parts[1:])


def offset_ns(calls: Calls, move: Move | None) -> int:
    """What to add to the marks of one window: the same for all, so that what lies in one another stays so."""
    first_ns = int(calls.columns["start_ns"].min()) if len(calls) else 0
    return move(first_ns) - first_ns if move else 0


def _frames(session: Session, record_type: Any, values: Sequence[Sequence[Any]]) -> dict[int, Frame]:
    try:
        columns = {
            name: np.array([UNKNOWN if value is None else value for value in column], dtype=np.int64)
            for name, column in zip(record_type._fields, values, strict=True)
        }
    except OverflowError:
        path, kind = session.path, kind_of(record_type)
        raise PerfError(f"'{path}': a {kind} record has a number that no measurement makes") from None
    whole = Frame(columns)
    return {
        int(process): _named(session, record_type, whole.where(columns["process"] == process))
        for process in np.unique(columns["process"])
    }


def _named(session: Session, record_type: Any, frame: Frame) -> Frame:
    process = int(frame["process"][0])
    for each in NAMES[record_type]:
        texts = [session.course.name(process, number) for number in frame.columns[each].tolist()]
        frame.columns[each] = np.array(texts, dtype=object)
    return frame


def _empty(record_type: Any) -> Frame:
    return Frame(
        {
            name: np.empty(0, dtype=object if name in NAMES[record_type] else np.int64)
            for name in record_type._fields
        }
    )
