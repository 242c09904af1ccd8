"""Healthy runs that are noisy, each in its own way: nothing in them has a cause.

Chance makes a step longer where its time is: delays hit a phase as often as its share of the step is, what
stretches a phase does so in proportion to it, and a neighbour or a drift of the speed stretches all phases.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from tests.fakes import MS
from tests.synthetic import PHASES, Plan

STEPS = 300
NAMES = [name for name, dur_ns in PHASES.items() if dur_ns]
USUAL = {name: PHASES[name] or 0 for name in NAMES}
STEP_NS = sum(USUAL.values())

Extra = list[dict[str, int]]


def quiet(chance: random.Random, steps: int) -> Extra:
    """Every phase wanders around its usual time and remembers where it was."""
    noise, memory = chance.uniform(0.005, 0.06), chance.uniform(0, 0.9)
    state = {name: 0.0 for name in NAMES}
    rows = []
    for _ in range(steps):
        for name in NAMES:
            state[name] = memory * state[name] + chance.gauss(0, noise * (1 - memory**2) ** 0.5)
        rows.append({name: int(USUAL[name] * max(-0.5, state[name])) for name in NAMES})
    return rows


def tails(chance: random.Random, steps: int) -> Extra:
    """Delays of any size, in a phase by chance, and phases that now and then take half as long again."""
    rows, rate, scale = quiet(chance, steps), chance.uniform(0.01, 0.2), chance.uniform(0.02, 0.4)
    for row in rows:
        if chance.random() < rate:
            (name,) = chance.choices(NAMES, [USUAL[name] for name in NAMES])
            row[name] += int(STEP_NS * min(5.0, scale * chance.paretovariate(1.5)))
        for name in NAMES:
            if chance.random() < 0.02:
                row[name] += USUAL[name] // 2
    return rows


def bursts(chance: random.Random, steps: int) -> Extra:
    """Stretches in which everything takes longer, each no longer than a tenth of the run."""
    rows = quiet(chance, steps)
    for _ in range(chance.randint(1, 12)):
        begin, length, factor = (
            chance.randrange(steps),
            chance.randint(2, min(30, steps // 10)),
            chance.uniform(0.1, 2),
        )
        for row in rows[begin : begin + length]:
            _stretch(row, factor, chance)
    return rows


def drift(chance: random.Random, steps: int) -> Extra:
    """The whole training becomes slower or faster, evenly or as it comes."""
    rows, total, wander = quiet(chance, steps), chance.uniform(-0.3, 0.6), chance.uniform(0, 0.02)
    level = 0.0
    for number, row in enumerate(rows):
        level = 0.98 * level + chance.gauss(0, wander)
        for name in NAMES:
            row[name] += int(USUAL[name] * max(-0.4, total * number / steps + level))
    return rows


def neighbours(chance: random.Random, steps: int) -> Extra:
    """Another process takes turns with the training, for shorter and longer times."""
    rows, busy, factor = quiet(chance, steps), False, chance.uniform(0.2, 3)
    begins, ends = chance.uniform(0.01, 0.2), chance.uniform(0.05, 0.7)
    for row in rows:
        busy = chance.random() > ends if busy else chance.random() < begins
        if busy:
            _stretch(row, factor, chance)
    return rows


def _stretch(row: dict[str, int], factor: float, chance: random.Random) -> None:
    for name in NAMES:
        row[name] += int(USUAL[name] * factor * chance.uniform(0.3, 1.7))


def warming(chance: random.Random, steps: int) -> Extra:
    """The first steps take longer, each less than the one before."""
    rows, factor, lasts = quiet(chance, steps), chance.uniform(0.1, 3), chance.uniform(1, steps / 20)
    for number, row in enumerate(rows):
        for name in NAMES:
            row[name] += int(USUAL[name] * factor * math.exp(-number / lasts))
    return rows


def pausing(chance: random.Random, steps: int) -> Extra:
    """Every so many steps a checkpoint or an evaluation, and a longer step or two after it."""
    rows, every, factor = quiet(chance, steps), chance.randint(10, 200), chance.uniform(0, 1)
    for number in range(every, steps, every):
        for row in rows[number : number + chance.randint(0, 2)]:
            _stretch(row, factor, chance)
    return rows


KINDS: dict[str, Callable[[random.Random, int], Extra]] = {
    "quiet": quiet,
    "tails": tails,
    "bursts": bursts,
    "drift": drift,
    "neighbours": neighbours,
    "warming": warming,
    "pausing": pausing,
}


def plan(kind: str, seed: int, steps: int = STEPS) -> Plan:
    """A run of that kind, with a device whose clock wanders under its power cap and memory that breathes."""
    chance = random.Random(f"{kind} {seed}")
    rows = KINDS[kind](chance, steps)

    def reading(number: int) -> dict[str, Any]:
        return {"throttle": "power", "sm_clock_mhz": chance.randint(1860, 1980)}

    def step(number: int) -> dict[str, Any]:
        return {"memory_peak_bytes": 110 * 10**9 + chance.randint(-MS, MS) * 1000}

    return Plan(step=step, extra=lambda number: rows[number - 1], reading=reading, steps=steps)
