"""The parts of a vLLM step, read from the run file of a profiled arm; `losses` computes the losses from
them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from flagscale_perf.analysis.run_file import RunFile, find_run_file
from flagscale_perf.bench.losses import HOST, OTHER, PRODUCTS, REST, TRANSFER, UNSPLIT, WAIT, Step
from flagscale_perf.profile.analysis.communication import RankCollectives, operations_of
from flagscale_perf.profile.analysis.operators import ATTENTION, MATMUL
from flagscale_perf.profile.analysis.report import ProfileReport, read_report
from flagscale_perf.profile.analysis.source import Rank
from flagscale_perf.profile.analysis.waits import waits_of
from flagscale_perf.spine.clock import NS_PER_S

WRITER_S, POLL_S = 20.0, 0.1  # a separate process writes the profile


def step_of(found: ProfileReport, phase: str) -> Step | None:
    """None if the profile has no such step."""
    sums = found.sums.get(phase)
    if sums is None:
        return None
    books, kinds = sums.mean, sums.by(lambda cell: cell.kind)
    products = sum(one.self_ns for kind, one in kinds.items() if kind in (MATMUL, ATTENTION))
    wait, transfer, unsplit = _communication(found, books.communication, phase)
    parts = {
        WAIT: wait, TRANSFER: transfer, UNSPLIT: unsplit, PRODUCTS: products,
        OTHER: books.operators + books.outside - products, HOST: books.host + books.engine,
        REST: books.residual,
    }  # fmt: skip
    return Step(
        {name: value / NS_PER_S for name, value in parts.items()},
        books.total / NS_PER_S,
        _clean(found, phase),
    )


def _communication(found: ProfileReport, total: float, phase: str) -> tuple[float, float, float]:
    """Waiting, transfer, and the rest: collectives of which not all ranks were recorded."""
    steps = sum(one.steps for one in found.sums[phase].books.values())
    waits = waits_of(operations_of([_collectives(rank, phase) for rank in found.profile.ranks]))
    wait = sum(one.exposed_waiting_ns for one in waits) / steps
    transfer = sum(one.exposed_transfer_ns for one in waits) / steps
    return wait, transfer, round(total - wait - transfer, 3)


def _collectives(rank: Rank, phase: str) -> RankCollectives:
    numbers = set(rank.steps["number"][rank.steps["phase"] == phase].tolist())
    own = [one for one in rank.collectives.records() if one["step"] in numbers]
    return RankCollectives(rank.rank, rank.clock, rank.place, own)


def _clean(found: ProfileReport, phase: str) -> float | None:
    times = [
        float(time) / NS_PER_S
        for rank in found.profile.ranks
        for time in rank.clean["total_ns"][rank.clean["phase"] == phase].tolist()
    ]
    return median(times) if times else None


def read_steps(directory: Path) -> Mapping[str, Step]:
    """Steps by phase from the profile in a directory, once its writer has ended. Raises PerfError if there is
    none.
    """
    path = find_run_file(directory)
    end_s = time.monotonic() + WRITER_S
    while RunFile(path).is_live() and time.monotonic() < end_s:
        time.sleep(POLL_S)
    found = read_report(path)
    made = {phase: step_of(found, phase) for phase in found.sums}
    return {phase: step for phase, step in made.items() if step is not None}
