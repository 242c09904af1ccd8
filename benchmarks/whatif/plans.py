"""What the engine's predictions are held against: trainings, and what changes in them; drawn by a seed.

Every layer of the model sleeps, as if a device computed while the processor is free, so that eight ranks on
two cores keep even steps. This file is read where a training is drawn, and by each of its ranks (inside.py):
it imports nothing but the standard library.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

FORWARD_MS, BACKWARD_MS = 40, 80  # of a layer and micro-batch
BEFORE = 12  # steps until a capture has begun: some settle, and it is asked for 3 s ahead
BLOCK, ROUNDS = 3, 4  # steps with the same plant, and how often each comes
PARTS = ("forward", "backward", "data_loading", "send", "optimizer", "between")
SIZES_MS = {"optimizer": (80, 160), "between": (80, 160)}  # once in a step; others in each micro-batch
LATE_MS = 45
NONE, ALL = "", -1
# m = 4, 8, 12, 16; the first ones settle, and so many samples are trained with each of them.
RAMP, RAMP_SAMPLES, RAMP_LAST = (4, 8, 12, 16), 224, 8
MICRO_BATCH = 2  # samples
STEPS = 14  # of a layout that is captured


@dataclass(frozen=True)
class Plant:
    """What one rank does longer.

    Attributes:
        part: one of PARTS.
        ms: each time: in each micro-batch, or message, or step.
        rank: which one; ALL for a link that is slow, whoever sends.
        hidden: another replica's rank is later anyway.
        stage: of ALL, those of this stage.
    """

    part: str
    ms: float
    rank: int
    hidden: bool = False
    stage: int = ALL

    @property
    def name(self) -> str:
        """Of the state in which it is on."""
        return f"{self.part}{' hidden' * self.hidden}"

    def is_of(self, rank: int, replicas: int) -> bool:
        """Whether that rank does it."""
        return self.rank in (rank, ALL) and self.stage in (rank // replicas, ALL)


@dataclass(frozen=True)
class Training:
    """A run.

    Attributes:
        name: of its files.
        layers: of each stage, in the order of the model.
        chunks: of the model on each stage.
        replicas: how many.
        batches: micro-batches of a replica in a step; the first of RAMP where `ramps`.
        forward_ms: of a layer and micro-batch.
        plants: one at a time is on, in blocks of steps.
        late: is on in all steps.
    """

    name: str
    layers: tuple[int, ...]
    seed: int
    batches: int = 4
    chunks: int = 1
    replicas: int = 1
    ramps: bool = False
    forward_ms: float = FORWARD_MS
    plants: tuple[Plant, ...] = ()
    late: Plant | None = None

    @property
    def ranks(self) -> int:
        """Processes."""
        return len(self.layers) * self.replicas

    @property
    def steps(self) -> int:
        """All of them."""
        if self.ramps:
            per_step = [MICRO_BATCH * each * self.replicas for each in RAMP[:-1]]
            return sum(-(-RAMP_SAMPLES * self.replicas // each) for each in per_step) + RAMP_LAST
        return BEFORE + (BLOCK * ROUNDS * (1 + len(self.plants)) if self.plants else STEPS)

    def state(self, step: int) -> str:
        """The name of the plant that is on in a step, counted from 1."""
        if not self.plants or step <= BEFORE:
            return NONE
        each = [NONE, *(plant.name for plant in self.plants)]
        number, place = divmod((step - BEFORE - 1) // BLOCK, len(each))
        return _order(self.seed, number, each)[place]


def _order(seed: int, number: int, each: Sequence[str]) -> list[str]:
    """Of one round; none follows itself where rounds meet."""
    found = random.Random(f"order {seed} {number}").sample(each, len(each))
    if number and found[0] == _order(seed, number - 1, each)[-1]:
        found.append(found.pop(0))
    return found


def drawn(seed: int) -> list[Training]:
    """All trainings of a seed."""
    draw = random.Random(f"whatif {seed}")
    even, deep = (2, 2), (1, 1, 1, 1)
    toggled = [
        _toggled("toggled_pp2", even, 1, draw),
        _toggled("toggled_pp4", deep, 1, draw),
        _toggled("toggled_pp2_dp2", even, 2, draw),
    ]
    ramps = [
        Training(f"ramp_pp{len(layers)}", layers, draw.randrange(1 << 16), ramps=True, forward_ms=_pad(draw))
        for layers in (even, deep)
    ]
    pad, wide, batches = _pad(draw), _pad(draw), 8
    layouts = {
        "pp2": even, "pp2_again": even, "pp2_31": (3, 1), "pp2_13": (1, 3), "pp4": deep,
    }  # fmt: skip
    four = [Training(name, own, 0, batches, forward_ms=pad) for name, own in layouts.items()]
    four.append(replace(four[0], name="pp2_vpp2", chunks=2))
    four.append(replace(four[0], name="pp2_dp2", replicas=2))
    eight = [Training(f"deep_pp{p}", (8 // p,) * p, 0, forward_ms=wide) for p in (2, 4, 8)]
    eight.append(Training("deep_pp2_53", (5, 3), 0, forward_ms=wide))
    whole = [_whole_stage(random.Random(f"whatif stage {seed}"))]
    every = *toggled, *ramps, *four, *eight, *whole
    return [replace(each, name=f"{each.name}_s{seed}") for each in every]


def _whole_stage(draw: random.Random) -> Training:
    """Of two stages one is slower on all its ranks, which have no faster peer."""
    parts = ("forward", "backward", "data_loading")
    plants = [Plant(part, round(draw.uniform(20, 45), 1), ALL, stage=draw.randrange(2)) for part in parts]
    seed, pad = draw.randrange(1 << 16), _pad(draw)
    return Training("toggled_stage", (2, 2), seed, replicas=2, forward_ms=pad, plants=tuple(plants))


def _pad(draw: random.Random) -> float:
    return round(draw.uniform(0.9, 1.1) * FORWARD_MS, 1)


def _toggled(name: str, layers: tuple[int, ...], replicas: int, draw: random.Random) -> Training:
    """Sizes such that a step feels them. Data is loaded by the first and the last stage. Of the last stage's
    replicas, where there are two, one is late in all steps: what the other one takes longer is hidden.
    """
    ranks = len(layers) * replicas
    free = ranks if replicas == 1 else ranks - replicas
    ends = {*range(replicas), *range(ranks - replicas, ranks)} & {*range(free)}
    plants = []
    for part in PARTS:
        ms = round(draw.uniform(*SIZES_MS.get(part, (20, 45))), 1)
        rank = draw.choice(sorted(ends) if part == "data_loading" else range(free))
        plants.append(Plant(part, ms, ALL if part == "send" else rank))
    late = None
    if replicas > 1:
        late = Plant("forward", LATE_MS, ranks - 1)
        plants.append(Plant("forward", round(draw.uniform(15, 30), 1), ranks - 2, hidden=True))
    return Training(
        name, layers, draw.randrange(1 << 16), replicas=replicas, forward_ms=_pad(draw),
        plants=tuple(plants), late=late,
    )  # fmt: skip
