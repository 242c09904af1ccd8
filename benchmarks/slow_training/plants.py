"""What is planted in a run: which delays, on which ranks, in which steps; drawn by a seed.

The first ALWAYS steps of a run carry the plants in each step, as a tool sees a slow job. In the rest they are
switched on and off in windows of WINDOW steps, and what a step takes longer with them is what they cost
(costs.py). This file is read where a run is drawn, and by each of its ranks (inside.py): it imports nothing
but the standard library.
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

ALWAYS, WINDOW = 60, 3  # steps; windows so short that what holds a machine up for seconds is in both kinds
# More steps where delays are small or two, fewer where steps are long.
SWITCHED_LEAST, SWITCHED, SWITCHED_MORE = 80, 120, 160
SMALL_MS = 20
PHASES = ("data_loading", "forward", "backward", "optimizer_inner_step", "exposed_grad_comm")
SIZES_MS = (10, 40, 120)
# All wait for all in it: who is late inside, nothing in the marks of one run decides. (Late inside the step's
# agreement is another thing: FlagScale asks nobody there, so that the others wait at the next collective.)
WAITS = ("exposed_grad_comm",)
PATTERNS = ("rotating", "growing", "bursts", "periodic")
PAIRS = ("pair_same", "pair_other")
WORKS = {  # with how many ranks
    "long_documents": (2, 4),
    "uneven_packing": (4,),
    "hot_expert": (2,),
    "more_microbatches": (2,),
    "documents_and_slow": (2,),
}
EVERY, BURST, BURSTS = 6, 3, 4

# So narrow that attention is near half of the FLOPs of a long document.
DOCUMENTS = shlex.split(
    "--seq-length 128 --max-position-embeddings 128 --micro-batch-size 1 --vocab-size 120 --hidden-size 8 "
    "--num-attention-heads 1 --attention-dropout 0 --hidden-dropout 0 --reset-position-ids "
    "--reset-attention-mask"
)
LONG, EVEN, MIXED = (128,), (16,) * 8, (80, 32, 16)
DEALT = (LONG, (64,) * 2, (32,) * 4, EVEN)  # their squared lengths are those of the mixed one in the mean
EXPERTS = shlex.split(
    "--num-experts 4 --moe-router-topk 1 --moe-router-pre-softmax --expert-model-parallel-size 2 "
    "--moe-ffn-hidden-size 1024 --moe-token-dispatcher-type alltoall --moe-router-load-balancing-type none "
    "--disable-bias-linear --vocab-size 120"
)
INTERLEAVED = (
    *("--num-layers-per-virtual-pipeline-stage", "1"),
    *("--no-check-for-nan-in-loss-and-grad", "--rerun-mode", "disabled"),
)
OVERLAP = ("--overlap-grad-reduce",)


@dataclass(frozen=True)
class Delay:
    """A rank that is slower at the same work.

    Attributes:
        part: where it sleeps: a phase, or "gradient_hook", inside the backward pass of the last layer.
        ms: for how long, once in a step.
        ranks: which one; one of these by chance in each step where `pattern` is "rotating".
        pattern: "constant"; "growing" from nothing to `ms`; "bursts"; "periodic"; "rotating".
        group: delays of one group are switched together.
    """

    part: str
    ms: float
    ranks: tuple[int, ...]
    pattern: str = "constant"
    group: int = 0

    @property
    def phase(self) -> str:
        """What a monitor calls the part."""
        return "backward" if self.part == "gradient_hook" else self.part


@dataclass(frozen=True)
class Planted:
    """A run.

    Attributes:
        name: of its files.
        kind: of what is planted; "healthy" where nothing is.
        ranks, stages: processes, and stages of the pipeline.
        seed: of what changes from step to step.
        delays: of ranks that are slower at the same work.
        more_work: a kind of WORKS: what `worker` has more of than the others, at the same speed. Without a
            worker it is dealt anew in each step.
        heavy: a stage whose ranks take longer in each forward pass, in all steps.
        busy: beside a process that never rests.
        options: of the host, beside those of all runs.
        switched: steps after the first ALWAYS.
    """

    name: str
    kind: str
    ranks: int
    seed: int
    stages: int = 1
    delays: tuple[Delay, ...] = ()
    more_work: str | None = None
    worker: int | None = None
    heavy: int | None = None
    busy: bool = False
    options: tuple[str, ...] = ()
    switched: int = SWITCHED

    @property
    def groups(self) -> int:
        """How many delays are switched each by itself."""
        return len({delay.group for delay in self.delays})


def is_on(step: int, group: int = 0, groups: int = 1) -> bool:
    """Whether a group of plants is on in a step, counted from 1. In the switched half one group is on in each
    second window; of two, both are on, then the first, then none, then the second.
    """
    if step <= ALWAYS:
        return True
    window = (step - ALWAYS - 1) // WINDOW
    return window % 2 == 0 if groups < 2 else window % 4 in ((0, 1), (0, 3))[group]


def part_of(delay: Delay, step: int, seed: int) -> float:
    """Of a delay's milliseconds, how many a step has where it is on."""
    if step > ALWAYS:  # what a slow step costs is measured in windows of nothing else
        return 1.0
    if delay.pattern == "growing":
        return step / ALWAYS
    if delay.pattern == "periodic":
        return float(step % EVERY == 3)
    if delay.pattern == "bursts":
        starts = random.Random(f"bursts {seed}").sample(range(6, ALWAYS - BURST, BURST + 2), BURSTS)
        return float(any(start <= step < start + BURST for start in starts))
    return 1.0


def rank_of(delay: Delay, step: int, seed: int) -> int:
    """Which rank is late in a step."""
    return random.Random(f"rank {seed} {step}").choice(delay.ranks)


def documents_of(plan: Planted, step: int, rank: int) -> Sequence[int]:
    """How long the documents are that a rank gets in a step, all its samples alike; they fill a sample."""
    if plan.more_work == "uneven_packing":
        order = random.Random(f"packing {plan.seed} {step}").sample(range(len(DEALT)), len(DEALT))
        return DEALT[order[rank]] if is_on(step) else MIXED
    return LONG if is_on(step) and rank == plan.worker else EVEN


def drawn(seed: int) -> list[Planted]:
    """All runs of a seed: each phase and size, the other kinds, work, pipelines, and healthy runs."""
    draw = random.Random(seed)
    found = [_basic(phase, ms, draw) for phase in PHASES for ms in SIZES_MS]
    found += [_pattern(pattern, draw) for pattern in PATTERNS]
    found += [_pair(kind, draw) for kind in PAIRS]
    found += [_hook(options, draw) for options in ((), OVERLAP)]
    found += [_run("inside_agreement", 4, draw, Delay("exposed_stat_comm", 40, (draw.randrange(4),)))]
    found += [_work(kind, ranks, draw) for kind, counts in WORKS.items() for ranks in counts]
    found += [_pipeline(number, draw) for number in range(6)]
    found += [
        replace(_pipeline(0, draw), kind="interleaved_2x2", name="interleaved_2x2", options=INTERLEAVED)
    ]
    draw.shuffle(found)
    found += _healthy(draw)
    return [replace(run, name=f"{run.name}_s{seed}") for run in found]


def _run(kind: str, ranks: int, draw: random.Random, *delays: Delay, name: str = "") -> Planted:
    return Planted(name or f"{kind}_r{ranks}", kind, ranks, draw.randrange(1 << 16), delays=delays)


def _basic(phase: str, ms: int, draw: random.Random) -> Planted:
    ranks = draw.choice((2, 4))
    run = _run(
        phase, ranks, draw, Delay(phase, ms, (draw.randrange(ranks),)), name=f"{phase}_{ms}ms_r{ranks}"
    )
    return replace(run, switched=SWITCHED_MORE) if ms < SMALL_MS else run


def _pattern(pattern: str, draw: random.Random) -> Planted:
    ranks, phase = 4, draw.choice(("forward", "backward", "data_loading"))
    ms = {"rotating": 40, "growing": 90, "bursts": 150, "periodic": 180}[pattern]
    late = tuple(range(ranks)) if pattern == "rotating" else (draw.randrange(ranks),)
    return _run(pattern, ranks, draw, Delay(phase, ms, late, pattern))


def _pair(kind: str, draw: random.Random) -> Planted:
    one, other = draw.sample(range(4), 2)
    # data, forward and backward are in front of the same wait, the optimizer's step in front of the next
    parts = ("forward", "forward") if kind == "pair_same" else ("backward", "optimizer_inner_step")
    delays = [
        Delay(part, 40, (rank,), group=group)
        for group, (part, rank) in enumerate(zip(parts, (one, other), strict=True))
    ]
    return replace(_run(kind, 4, draw, *delays), switched=SWITCHED_MORE)


def _hook(options: tuple[str, ...], draw: random.Random) -> Planted:
    kind = "born_in_backward" + ("_overlapped" if options else "")
    return replace(_run(kind, 4, draw, Delay("gradient_hook", 40, (draw.randrange(4),))), options=options)


def _work(kind: str, ranks: int, draw: random.Random) -> Planted:
    worker = None if kind == "uneven_packing" else draw.randrange(ranks)
    slow = [Delay("forward", 40, (worker,))] if kind == "documents_and_slow" and worker is not None else []
    options = {"hot_expert": EXPERTS, "more_microbatches": []}.get(kind, DOCUMENTS)
    return replace(_run(kind, ranks, draw, *slow), more_work=kind, worker=worker, options=tuple(options))


def _pipeline(number: int, draw: random.Random) -> Planted:
    """Of 4 ranks in two or four stages; one of them is heavy in each second run."""
    stages, phase = (2, 2, 4)[number % 3], ("forward", "backward")[number // 3 % 2]
    rank = draw.randrange(4)
    heavy = (
        draw.choice([each for each in range(stages) if each != rank * stages // 4]) if number % 2 else None
    )
    kind = f"pipeline_{stages}x{4 // stages}{'' if heavy is None else '_heavy'}"
    run = _run(kind, 4, draw, Delay(phase, 60 if stages == 4 else 40, (rank,)), name=f"{kind}_{phase}")
    return replace(run, stages=stages, heavy=heavy, switched=SWITCHED_LEAST)


def _healthy(draw: random.Random) -> list[Planted]:
    """Twenty, of which five beside a busy process."""
    kinds: list[tuple[str, int, int, Sequence[str]]] = [("plain", ranks, 1, ()) for ranks in (2, 4) * 4]
    kinds += [("overlap", 4, 1, OVERLAP), ("overlap", 2, 1, OVERLAP)]
    kinds += [("pipeline", 4, 2, ()), ("pipeline", 4, 2, ())]
    kinds += [("documents", 4, 1, DOCUMENTS), ("documents", 2, 1, DOCUMENTS), ("experts", 2, 1, EXPERTS)]
    kinds += [("busy", ranks, 1, ()) for ranks in (2, 4, 2, 4, 2)]
    works = {"documents": "even_documents", "experts": "even_experts"}
    return [
        Planted(
            f"healthy_{number:02}_{kind}_r{ranks}", "healthy", ranks, draw.randrange(1 << 16), stages,
            more_work=works.get(kind), busy=kind == "busy", options=tuple(options), switched=0,
        )
        for number, (kind, ranks, stages, options) in enumerate(kinds)
    ]  # fmt: skip
