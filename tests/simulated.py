"""Runs whose truth is known: steps that remember each other, with heavy tails, in runs that differ a little
as a whole.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from flagscale_perf.training.analysis.steps import Step
from flagscale_perf.training.phases import PHASES

SHARES = {"data_loading": 0.02, "forward": 0.30, "backward": 0.55, "optimizer": 0.05, "other": 0.08}
ITERATION_MS = 100


@dataclass(frozen=True)
class Process:
    """How steps vary: each phase by an autoregressive process of first order, a few of them by half as much
    again, and from run to run.
    """

    memory: float = 0.6
    step_noise: float = 0.03
    tail: float = 0.02
    run_noise: float = 0.008


def simulate(seed: int, steps: int, process: Process, **slower: float) -> list[Step]:
    """Steps of one run, slower phases by so many parts of the whole iteration."""
    chance = random.Random(seed)
    columns = {name: _column(chance, steps, share, process) for name, share in SHARES.items()}
    for name, share in slower.items():
        columns[name] = [value + share * ITERATION_MS for value in columns[name]]
    return [
        _step(number, {name: column[number] for name, column in columns.items()}) for number in range(steps)
    ]


def _column(chance: random.Random, steps: int, share: float, process: Process) -> list[float]:
    """The variances of the phases add up to that of the iteration."""
    own = ITERATION_MS * share**0.5
    level = ITERATION_MS * share + chance.gauss(0, process.run_noise) * own
    fresh = process.step_noise * (1 - process.memory**2) ** 0.5
    state, values = chance.gauss(0, process.step_noise), []
    for _ in range(steps):
        state = process.memory * state + chance.gauss(0, fresh)
        tail = 0.5 * ITERATION_MS * share if chance.random() < process.tail else 0.0
        values.append(level + state * own + tail)
    return values


def _step(number: int, phases_ms: dict[str, float]) -> Step:
    phases = tuple(round(phases_ms[name] * 1e6) if name in phases_ms else None for name in PHASES)
    return Step(number, sum(value or 0 for value in phases), 4, 512, 10**12, phases)
