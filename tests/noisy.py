"""Healthy runs that are noisy, each in its own way: nothing in them has a cause.

Chance makes a step longer where its time is: delays hit a phase as often as its share of the step is, what
stretches a phase does so in proportion to it, and a neighbour or a drift of the speed stretches all phases.
"""

from __future__ import annotations

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


def quiet(chance: random.Random) -> Extra:
    """Every phase wanders around its usual time and remembers where it was."""
    noise, memory = chance.uniform(0.005, 0.06), chance.uniform(0, 0.9)
    state = {name: 0.0 for name in NAMES}
    rows = []
    for _ in range(STEPS):
        for name in NAMES:
            state[name] = memory * state[name] + chance.gauss(0, noise * (1 - memory**2) ** 0.5)
        rows.append({name: int(USUAL[name] * max(-0.5, state[name])) for name in NAMES})
    return rows


def tails(chance: random.Random) -> Extra:
    """Delays of any size, in a phase by chance, and phases that now and then take half as long again."""
    rows, rate, scale = quiet(chance), chance.uniform(0.01, 0.2), chance.uniform(0.02, 0.4)
    for row in rows:
        if chance.random() < rate:
            (name,) = chance.choices(NAMES, [USUAL[name] for name in NAMES])
            row[name] += int(STEP_NS * min(5.0, scale * chance.paretovariate(1.5)))
        for name in NAMES:
            if chance.random() < 0.02:
                row[name] += USUAL[name] // 2
    return rows


def bursts(chance: random.Random) -> Extra:
    """Stretches in which everything takes longer."""
    rows = quiet(chance)
    for _ in range(chance.randint(1, 12)):
        begin, length, factor = chance.randrange(STEPS), chance.randint(2, 30), chance.uniform(0.1, 2)
        for row in rows[begin : begin + length]:
            _stretch(row, factor, chance)
    return rows


def drift(chance: random.Random) -> Extra:
    """The whole training becomes slower or faster, evenly or as it comes."""
    rows, total, wander = quiet(chance), chance.uniform(-0.3, 0.6), chance.uniform(0, 0.02)
    level = 0.0
    for number, row in enumerate(rows):
        level = 0.98 * level + chance.gauss(0, wander)
        for name in NAMES:
            row[name] += int(USUAL[name] * max(-0.4, total * number / STEPS + level))
    return rows


def neighbours(chance: random.Random) -> Extra:
    """Another process takes turns with the training, for shorter and longer times."""
    rows, busy, factor = quiet(chance), False, chance.uniform(0.2, 3)
    begins, ends = chance.uniform(0.01, 0.2), chance.uniform(0.05, 0.7)
    for row in rows:
        busy = chance.random() > ends if busy else chance.random() < begins
        if busy:
            _stretch(row, factor, chance)
    return rows


def _stretch(row: dict[str, int], factor: float, chance: random.Random) -> None:
    for name in NAMES:
        row[name] += int(USUAL[name] * factor * chance.uniform(0.3, 1.7))


KINDS: dict[str, Callable[[random.Random], Extra]] = {
    "quiet": quiet,
    "tails": tails,
    "bursts": bursts,
    "drift": drift,
    "neighbours": neighbours,
}


def plan(kind: str, seed: int) -> Plan:
    """A run of that kind, with a device whose clock wanders under its power cap and memory that breathes."""
    chance = random.Random(f"{kind} {seed}")
    rows = KINDS[kind](chance)

    def reading(number: int) -> dict[str, Any]:
        return {"throttle": "power", "sm_clock_mhz": chance.randint(1860, 1980)}

    def step(number: int) -> dict[str, Any]:
        return {"memory_peak_bytes": 110 * 10**9 + chance.randint(-MS, MS) * 1000}

    return Plan(step=step, extra=lambda number: rows[number - 1], reading=reading, steps=STEPS)
