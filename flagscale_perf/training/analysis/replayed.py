"""Captured steps of a pipeline as the engine that replays them takes them, and what it says of late ranks.

The ledger knows what a stage waits for a rank; what the job would gain without that, other stages decide.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from flagscale_perf.analysis.replays import (
    Gain,
    Kind,
    Layout,
    NotKnownError,
    Part,
    PathTimes,
    RankStep,
    Replays,
    engine,
)
from flagscale_perf.spine.averages import median
from flagscale_perf.spine.chance import SURE_STEPS, median_within
from flagscale_perf.training.capture import is_sound
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.ledger.cuts import BETWEEN, CUTS
from flagscale_perf.training.ledger.ledger import BY_PATH, MEASURED, OFF_PATH, LateRow, Ledger
from flagscale_perf.training.marks import spans_of
from flagscale_perf.training.phases import AGREEMENT, GROUPS, NUMBER_OF, ONE_F_ONE_B, PHASES
from flagscale_perf.training.rank_records import NodeRecord
from flagscale_perf.training.records import CapturedRecord, CaptureRecord

MAX_STEPS, MAX_WINDOWS = 64, 4  # of a window; of a run
MAX_PARTS, LEAST_STEPS = 25_000_000, 2  # of all steps that are kept: 1 GB while they are replayed
BESIDE = 0.5  # of what the stage waits: a gain between nothing and less than this is beside the path
JUDGED = ("data_loading", "forward", "backward")  # of other phases the path is not known well enough
LATE = 0.5  # of what a unit usually takes longer; a step with so much of it is one of its late ones
KNOWN_SCHEDULES = (ONE_F_ONE_B, "interleaved")
_WORK = tuple(map(PHASES.index, ("forward", "backward")))
NAMES = {  # that changes may use
    **{name: (number,) for number, name in enumerate(PHASES)},
    "optimizer": tuple(number for number, name in enumerate(PHASES) if name.startswith("optimizer")),
    "p2p": tuple(map(PHASES.index, GROUPS["Pipe"])),
}
_EXCHANGES = frozenset(map(PHASES.index, ("exposed_grad_comm", "exposed_param_comm")))
_UNIFORM: Mapping[str, tuple[object, ...]] = {  # arguments by which layers are alike and divided evenly
    "moe_layer_freq": (None, 1),
    "hybrid_override_pattern": (None,),
    "decoder_num_layers": (None,),
    "mtp_num_layers": (None, 0),
    "pipeline_model_parallel_layout": (None,),
    "hetero_pipeline_layer_split": (None,),
    "heterogeneous_layers_config_path": (None,),
    "account_for_embedding_in_pipeline_split": (None, False),
    "account_for_loss_in_pipeline_split": (None, False),
    "standalone_embedding_stage": (None, False),
}
_SOME_STEPS = ("periodic", "bursts")
_PIPE = frozenset(map(PHASES.index, GROUPS["Pipe"]))
_AGREEING, _EMBEDDINGS = PHASES.index("exposed_stat_comm"), "embedding-grads-all-reduce"
_TIMERS = {number: name for name, number in NUMBER_OF.items()}
_PASSES = {
    NUMBER_OF[f"{name}-compute"]: (kind, PHASES.index(name))
    for name, kind in (("forward", Kind.FORWARD), ("backward", Kind.BACKWARD))
}


class Kept(NamedTuple):
    """A captured step of a rank, in short: a text is one value of a fold's state.

    Attributes:
        codes, since: of its marks, as in the record.
    """

    start_ns: int
    train_step_ns: int
    codes: str
    since: str


class StageGains(NamedTuple):
    """What captured steps gain if stages work otherwise, in shares of a mean step: medians.

    Attributes:
        stage: the one that works the longest.
        even: if each pass takes as long on every stage as the mean of all; `even_within`: between which two
            shares that lies.
        alone: if those of this one take as long as the mean of the others.
    """

    stage: int
    even: float
    even_within: tuple[float, float]
    alone: float


class _Window(NamedTuple):
    """Steps that were captured together, by iteration and rank; `is_asked`: somebody asked for them."""

    is_asked: bool
    steps: dict[int, dict[int, Kept]]


class ReplayFold:
    """Keeps the first captured steps of the last windows.

    Attributes:
        why_not: why captured steps are not replayed; "" where they are, or where there are none.
    """

    def __init__(self, facts: RunFacts) -> None:
        """`facts` of the run."""
        self._facts, self._ranks = facts, facts.world_size or 0
        self._stages: dict[int, int] = {}
        self._hosts: dict[int, str] = {}
        self._windows: list[_Window] = []
        self._parts = 0
        self.why_not = ""

    def node(self, record: NodeRecord) -> None:
        """The places of more ranks."""
        self._stages |= zip(record.ranks, record.stages, strict=False)
        self._hosts |= dict.fromkeys(record.ranks, record.hostname)

    def window(self, record: CaptureRecord) -> None:
        """The next window of captured steps."""
        last = min(record.iteration, record.first_iteration + MAX_STEPS)
        steps: dict[int, dict[int, Kept]] = {each: {} for each in range(record.first_iteration, last + 1)}
        self._windows.append(_Window(not record.why, steps))
        if len(self._windows) > MAX_WINDOWS:
            self._leave_out(self._windows.pop(0).steps, 0)

    def add(self, record: CapturedRecord) -> None:
        """One step of a rank; one that a damaged file has made impossible counts as missing."""
        steps = self._windows[-1].steps if self._windows else {}
        if record.iteration in steps and is_sound(record):
            step = steps[record.iteration]
            if record.rank in step:  # a damaged file may have it twice
                return
            is_followed = any(record.iteration - 1 in one.steps for one in self._windows)
            marks = record.marks if is_followed else []  # of the first one only its end counts
            texts = (" ".join(map(str, numbers)) for numbers in (marks[::2], marks[1::2]))
            step[record.rank] = Kept(record.start_ns, record.train_step_ns, *texts)
            self._parts += len(marks) // 2
            self._make_room(steps)

    def _make_room(self, steps: dict[int, dict[int, Kept]]) -> None:
        """Windows before the last one go first, then its last steps, down to one and the end before it."""
        while self._parts > MAX_PARTS:
            begun = [iteration for iteration, step in steps.items() if step]
            if len(self._windows) > 1:
                self._leave_out(self._windows.pop(0).steps, 0)
            elif len(begun) > LEAST_STEPS:
                self._leave_out(steps, max(begun))
            else:
                return

    @property
    def has_steps(self) -> bool:
        """Whether there are captured steps."""
        return any(any(one.steps.values()) for one in self._windows)

    def _leave_out(self, steps: dict[int, dict[int, Kept]], first: int) -> None:
        """The steps of a window from that one on: the job is too large."""
        for iteration in [each for each in steps if each >= first]:
            self._parts -= sum(len(one.codes.split()) for one in steps.pop(iteration).values())

    def replays(self, pauses_ns: Mapping[str, float] | None = None) -> Replays | None:
        """The captured steps of the last window that was asked for, or else of the last one, and where these
        cannot be replayed of one before; the windows before that tell what a rank took earlier. None where
        there is none. `pauses_ns`: see `Layout`.
        """
        self.why_not = ""
        stages = self._stages or ({0: 0} if self._ranks == 1 else {})
        if len(stages) != self._ranks:
            return None
        layout = layout_of(self._facts, stages, self._hosts or {0: ""})._replace(pauses_ns=pauses_ns or {})
        windows = [one for one in self._windows if any(one.steps.values())]
        for window in sorted(windows, key=lambda one: (one.is_asked, min(one.steps)), reverse=True):
            if (found := self._replays_of(window, layout)) is not None:
                return found
        return None

    def _replays_of(self, window: _Window, layout: Layout) -> Replays | None:
        since = min(window.steps)
        before = {at: step for one in self._windows for at, step in one.steps.items() if at < since}
        try:
            if (found := engine()) is not None:
                return found.replays_of(layout._replace(since=since), steps_of({**before, **window.steps}))
        except (NotKnownError, ImportError) as error:  # without numpy there is no engine
            self.why_not = self.why_not or str(error)
        return None


def priced_ledger(ledger: Ledger, replays: Replays) -> Ledger:
    """Each late unit that captured steps of a pipeline can tell of, priced by what the whole job gains."""

    def price(row: LateRow) -> LateRow:
        return priced(row, ledger.steps, replays.gains(row.ranks, PHASES.index(row.phase)))

    return replace(ledger, late=[price(row) if is_judged(row) else row for row in ledger.late])


def is_judged(row: LateRow) -> bool:
    """Whether captured steps can tell what its lateness costs the job."""
    return row.label == MEASURED and row.phase in JUDGED and row.pattern != "single"


def priced(row: LateRow, steps: int, gains: Sequence[Gain]) -> LateRow:
    """The row of a ledger of so many steps, priced by what replayed steps gain without its lateness; as it is
    where these are too few or differ too much to tell.

    Of a unit that is late in some steps, those tell in which it is. One that takes longer and longer is
    priced by the part of its lateness that is gained.
    """
    steps_ns = [float(one.gain_ns) for one in gains]
    count: float = steps
    if row.pattern in _SOME_STEPS:
        steps_ns = [one.gain_ns for one in gains if one.longer_ns >= LATE * row.usual_ns]
        count = row.steps
    elif row.pattern != "constant":
        of = [
            one
            for one in gains
            if row.first_iteration <= one.iteration <= row.iteration and one.longer_ns > 0
        ]
        steps_ns = [one.gain_ns / one.longer_ns for one in of]
        count = row.cost_ns
    within = median_within(steps_ns)
    if within is None:
        return row
    low_ns, high_ns = within
    is_beside = low_ns <= 0 and count * high_ns < BESIDE * row.cost_ns
    if low_ns <= 0 and not is_beside:
        return row
    return replace(
        row,
        alone_ns=max(0, round(count * median(steps_ns))),
        least_ns=max(0, round(count * low_ns)),
        most_ns=max(0, round(count * high_ns)),
        label=OFF_PATH if is_beside else BY_PATH,
    )


def layout_of(facts: RunFacts, stages: Mapping[int, int], clocks: Mapping[int, str]) -> Layout:
    """How the engine knows the job."""
    arguments = facts.arguments or {}

    def number(name: str, default: int) -> int:
        value = arguments.get(name)
        return value if type(value) is int and value > 0 else default

    chunks = number("virtual_pipeline_model_parallel_size", 1)
    whole_at_once = arguments.get("overlap_grad_reduce") is False and facts.expert_parallel == 1
    return Layout(
        stages=stages,
        clocks=clocks,
        schedule=facts.pipeline_schedule,
        chunks=chunks,
        group=number("microbatch_group_size_per_vp_stage", facts.pipeline_parallel or 1),
        overlaps=chunks > 1 and bool(arguments.get("overlap_p2p_comm")),
        tensor_parallel=min(facts.tensor_parallel or 1, len(stages)),
        agreement=AGREEMENT,
        embeddings=_EMBEDDINGS,
        # where gradients are reduced beside the backward pass, that has begun before the timer
        strict=frozenset({"all-grads-sync"} if whole_at_once else ()),
        phases=NAMES,
        layers=layers_of(facts, chunks),
        data_parallel=facts.data_parallel or 0,
        exchanges=_EXCHANGES,
        recompute=str(arguments.get("recompute_granularity") or "none"),
        micro_batch=facts.micro_batch_size or 0,
    )


def layers_of(facts: RunFacts, chunks: int) -> list[tuple[int, ...]]:
    """Layers of each stage, by chunk; none where layers are not alike, or not divided as is usual."""
    arguments, stages = facts.arguments or {}, facts.pipeline_parallel or 1
    total = arguments.get("num_layers")
    if type(total) is not int or any(arguments.get(name) not in usual for name, usual in _UNIFORM.items()):
        return []
    ends = [arguments.get(f"decoder_{end}_pipeline_num_layers") for end in ("first", "last")]
    first, last = (each if type(each) is int else 0 for each in ends)
    between = stages - (first > 0) - (last > 0)
    each, rest = divmod(total - first - last, between) if between else (0, total - first - last)
    counts = [*[first] * (first > 0), *[each] * between, *[last] * (last > 0)]
    if rest or any(count % chunks or count <= 0 for count in counts):
        return []
    return [(count // chunks,) * chunks for count in counts]


def steps_of(kept: Mapping[int, Mapping[int, Kept]]) -> Iterator[RankStep]:
    """Every step before which the same rank's step was captured, too, but those whose times run backwards."""
    parts: dict[str, tuple[Part, ...]] = {}
    for iteration, step in kept.items():
        for rank, one in step.items():
            before = kept.get(iteration - 1, {}).get(rank)
            if before is not None:
                begin_ns = before.start_ns + before.train_step_ns
                since = [*map(int, one.since.split())]
                own = parts.get(one.codes) or parts.setdefault(one.codes, parts_of(one.codes))
                rest = [one.train_step_ns - sum(since)] if len(own) == len(since) + 2 else []
                durs_ns = array("q", [one.start_ns - begin_ns, *since[: len(own) - 1], *rest])
                if min(durs_ns) >= 0:
                    yield RankStep(rank, iteration, own, durs_ns, begin_ns)


def parts_of(codes: str) -> tuple[Part, ...]:
    """The parts of a step with these marks, behind the time since the step before."""
    ends = [*map(int, codes.split())]
    phases = [phase for phase, _ in spans_of(((code, 0) for code in ends), 0, 0)]
    return (
        Part(Kind.WORK, BETWEEN),
        *(_part(*each) for each in zip(phases, [*ends, -1], strict=False)),
    )


def _part(phase: int, ended_by: int) -> Part:
    """Of a phase, until that mark."""
    timer, is_stop = ended_by >> 1, ended_by & 1
    if phase in _PIPE:
        return Part(Kind.MESSAGE, phase, _TIMERS.get(timer, ""))
    if phase in CUTS:  # the agreement that ends a step is ended by no timer of its own
        return Part(Kind.MEETING, phase, AGREEMENT if phase == _AGREEING else _TIMERS.get(timer, ""))
    kind, of = _PASSES.get(timer, (Kind.WORK, phase))
    if not is_stop:
        return Part(Kind.WORK if kind is Kind.WORK else Kind.BEFORE, phase)
    return Part(kind if phase == of else Kind.WORK, phase)


def stage_gains(replays: Replays, path: PathTimes) -> StageGains | None:
    """By a usual rank of each stage: of two, one of which may be late, the other. None below two stages, and
    where the steps are too few to tell.
    """
    works: dict[int, list[int]] = defaultdict(list)
    for rank, stage in path.stages.items():
        works[stage].append(sum(path.own_ns[rank, phase] for phase in _WORK))
    work = {stage: sorted(of_ranks)[(len(of_ranks) - 1) // 2] for stage, of_ranks in works.items()}
    if len(work) < 2:
        return None
    slowest = max(work, key=lambda stage: work[stage])
    own = [rank for rank, stage in path.stages.items() if stage == slowest]
    both = replays.levelled(path.stages, path.stages), replays.levelled(own, path.stages.keys() - own)
    step_ns = path.total_ns / path.steps
    even, alone = ([gain.gain_ns / step_ns for gain in gains] for gains in both)
    within = median_within(even)
    if within is None or len(alone) < SURE_STEPS:
        return None
    return StageGains(slowest, median(even), within, median(alone))
