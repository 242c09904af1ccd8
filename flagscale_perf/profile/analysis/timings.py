"""Every run of every operator and module as CSV: the content of `detailed_timings.csv`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flagscale_perf.profile.analysis.operators import HOST, kind_of
from flagscale_perf.profile.analysis.source import UNKNOWN, Profile, Rank, offset_ns
from flagscale_perf.profile.calls import Calls, read_calls
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.figures import csv_line

HEAD = (
    *("rank", "iteration", "step", "step_phase", "phase", "module", "op", "kind"),
    *("ordinal", "start_ns", "duration_ns", "self_ns"),
)
_AT_ONCE = 50_000  # lines that are made at a time: as much memory as they need


def lines(profile: Profile) -> Iterator[bytes]:
    """The header, then one line per run, by rank and window; many lines at a time."""
    yield csv_line(HEAD).encode()
    for rank in profile.ranks:
        for calls in files_of(rank):
            if isinstance(calls, Calls):
                yield from lines_of(rank, calls)


def missing(profile: Profile) -> Iterator[str]:
    """The reasons why runs are missing, each once."""
    reasons = (
        f"{rank.title}: {calls}"
        for rank in profile.ranks
        for calls in files_of(rank)
        if not isinstance(calls, Calls)
    )
    yield from dict.fromkeys(reasons)


def files_of(rank: Rank) -> Iterator[Calls | str]:
    """The runs of each window, or why there are none."""
    windows = rank.windows
    for name, steps in zip(windows["calls"].tolist(), windows["steps"].tolist(), strict=True):
        if name:
            try:
                yield read_calls(rank.directory / name.rpartition("/")[2])
            except PerfError as error:
                yield str(error)
        elif steps:
            yield "a window has sums of its operators alone"


def lines_of(rank: Rank, calls: Calls) -> Iterator[bytes]:
    """The lines of one window, many at a time: there may be a million."""
    steps = {
        number: (None if iteration == UNKNOWN else iteration, phase)
        for number, iteration, phase in zip(
            *(rank.steps[name].tolist() for name in ("number", "iteration", "phase")), strict=True
        )
    }
    rows, place = calls.distinct("step", "part", "module", "op")
    begins = [_begin(rank, calls, steps, *row) for row in rows]
    starts_ns = calls.columns["start_ns"] + offset_ns(calls, rank.move)
    others = (calls.columns[name] for name in ("duration_ns", "self_ns"))
    columns = (place, calls.columns["ordinal"], starts_ns, *others)
    for begin in range(0, len(calls), _AT_ONCE):
        runs = zip(*(column[begin : begin + _AT_ONCE].tolist() for column in columns), strict=True)
        made = (f"{begins[of]}{number},{start},{took},{own}\n" for of, number, start, took, own in runs)
        yield "".join(made).encode()


def _begin(rank: Rank, calls: Calls, steps: dict[int, tuple[Any, str]], *row: int) -> str:
    """The columns that many lines share."""
    step = row[0]
    part, module, op = (calls.names[number] for number in row[1:])
    iteration, phase = steps.get(step, (None, None))
    number = rank.rank if rank.rank >= 0 else None
    kind = kind_of(op, part, module) if op else HOST
    return csv_line((number, iteration, step, phase, part, module, op, kind)).removesuffix("\n") + ","
