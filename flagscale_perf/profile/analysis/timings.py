"""Every run of every operator and module as CSV: the content of `detailed_timings.csv`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flagscale_perf.profile.analysis.operators import HOST, kind_of
from flagscale_perf.profile.analysis.source import UNKNOWN, Profile, Rank
from flagscale_perf.profile.calls import Calls, Ints, read_calls
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.figures import csv_line

HEAD = (
    *("rank", "iteration", "step", "step_phase", "phase", "module", "op", "kind"),
    *("ordinal", "start_ns", "duration_ns", "self_ns"),
)
_UNUSED, _MINUS, _ZERO, _COMMA, _NEWLINE = b"\0-0,\n"
_AT_ONCE = 50_000  # lines that are made at a time: as much memory as they need
Characters = NDArray[np.uint8]


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
    """The lines of one window, many at a time, made column by column: there may be a million."""
    steps = {
        number: (None if iteration == UNKNOWN else iteration, phase)
        for number, iteration, phase in zip(
            *(rank.steps[name].tolist() for name in ("number", "iteration", "phase")), strict=True
        )
    }
    columns = calls.columns
    rows, place = calls.distinct("step", "part", "module", "op")
    begins = _characters([_begin(rank, calls, steps, *row).encode() for row in rows])
    for begin in range(0, len(calls), _AT_ONCE):
        part = slice(begin, begin + _AT_ONCE)
        start_ns = columns["start_ns"][part] + rank.offset_ns
        numbers = (columns["ordinal"][part], start_ns, columns["duration_ns"][part], columns["self_ns"][part])
        made = [begins[place[part]]]
        for each in numbers:
            made += [_digits(each.astype(np.int64)), np.full((len(each), 1), _COMMA, np.uint8)]
        made[-1][:] = _NEWLINE
        table = np.concatenate(made, axis=1)
        yield table[table != _UNUSED].tobytes()


def _characters(texts: Sequence[bytes]) -> Characters:
    """A row for each text, as wide as the longest."""
    made = np.array(texts, np.bytes_)
    return made.view(np.uint8).reshape(len(texts), made.itemsize)


def _digits(values: Ints) -> Characters:
    """A row for each number, as wide as the longest; there is room for a sign."""
    rest = np.abs(values)
    width = len(str(int(rest.max(initial=0))))
    made = np.full((len(values), width + 1), _UNUSED, np.uint8)
    made[values < 0, 0] = _MINUS
    for place in range(width, 0, -1):
        tens = rest // 10
        is_shown = (rest > 0) | (place == width)
        made[:, place] = np.where(is_shown, rest - 10 * tens + _ZERO, _UNUSED)
        rest = tens
    return made


def _begin(rank: Rank, calls: Calls, steps: dict[int, tuple[Any, str]], *row: int) -> str:
    """The columns that many lines share."""
    step = row[0]
    part, module, op = (calls.names[number] for number in row[1:])
    iteration, phase = steps.get(step, (None, None))
    number = rank.rank if rank.rank >= 0 else None
    kind = kind_of(op, part, module) if op else HOST
    return csv_line((number, iteration, step, phase, part, module, op, kind)).removesuffix("\n") + ","
