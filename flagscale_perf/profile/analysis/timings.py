"""Every run of every operator as CSV: the content of `detailed_timings.csv`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from flagscale_perf.profile.analysis.operators import kind_of
from flagscale_perf.profile.analysis.source import UNKNOWN, Profile, Rank
from flagscale_perf.profile.calls import Calls, read_calls
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.figures import csv_line

HEAD = (
    *("rank", "iteration", "step", "step_phase", "phase", "module", "op", "kind"),
    *("ordinal", "start_ns", "duration_ns", "self_ns"),
)
_TEXTS = ("step", "part", "module", "op")


def lines(profile: Profile) -> Iterator[str]:
    """The header, then one line per run, by rank and window."""
    yield csv_line(HEAD)
    for rank in profile.ranks:
        for calls in _files(rank):
            if isinstance(calls, Calls):
                yield from lines_of(rank, calls)


def missing(profile: Profile) -> Iterator[str]:
    """Why runs are missing: each reason once."""
    said: dict[str, None] = {}
    for rank in profile.ranks:
        for calls in _files(rank):
            if not isinstance(calls, Calls):
                said[f"{rank.title}: {calls}"] = None
    yield from said


def _files(rank: Rank) -> Iterator[Calls | str]:
    """The file of each window, or why it has none."""
    windows = rank.windows
    for name, steps in zip(windows["calls"].tolist(), windows["steps"].tolist(), strict=True):
        if name:
            try:
                yield read_calls(rank.directory / name.rpartition("/")[2])
            except PerfError as error:
                yield str(error)
        elif steps:
            yield "a window has sums of its operators alone"


def lines_of(rank: Rank, calls: Calls) -> Iterator[str]:
    """The lines of one window."""
    steps = {
        number: (None if iteration == UNKNOWN else iteration, phase)
        for number, iteration, phase in zip(
            *(rank.steps[name].tolist() for name in ("number", "iteration", "phase")), strict=True
        )
    }
    columns = calls.columns
    texts = np.stack([columns[name].astype(np.int64) for name in _TEXTS], axis=1)
    distinct, place = np.unique(texts, axis=0, return_inverse=True)
    begins = [_begin(rank, calls, steps, *row) for row in distinct.tolist()]
    start_ns = (columns["start_ns"] + rank.offset_ns).tolist()
    times = (columns[name].tolist() for name in ("ordinal", "duration_ns", "self_ns"))
    ordinals, durations, selfs = times
    for index, ordinal, start, duration, own in zip(
        place.reshape(-1).tolist(), ordinals, start_ns, durations, selfs, strict=True
    ):
        yield f"{begins[index]}{ordinal},{start},{duration},{own}\n"


def _begin(rank: Rank, calls: Calls, steps: dict[int, tuple[Any, str]], *row: int) -> str:
    """The columns that many lines share."""
    step = row[0]
    part, module, op = (calls.names[number] for number in row[1:])
    iteration, phase = steps.get(step, (None, None))
    number = rank.rank if rank.rank >= 0 else None
    kind = kind_of(op, part, module)
    return csv_line((number, iteration, step, phase, part, module, op, kind)).removesuffix("\n") + ","
