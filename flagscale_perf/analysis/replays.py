"""What an instrument hands over so that its steps are replayed, and what it gets back.

The engine is the room `whatif`, found by its folder like an instrument: where it is not there, nothing is
priced. No instrument imports it, and it knows none.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from flagscale_perf.analysis.flows import FlowEngine
from flagscale_perf.analysis.predictions import Change as Change
from flagscale_perf.analysis.predictions import Check as Check
from flagscale_perf.analysis.predictions import Doubt as Doubt
from flagscale_perf.analysis.predictions import MissingRecordError as MissingRecordError
from flagscale_perf.analysis.predictions import Offer as Offer
from flagscale_perf.analysis.predictions import Prediction as Prediction
from flagscale_perf.analysis.predictions import offered as offered
from flagscale_perf.analysis.timeline import Drawn

_PACKAGE, _FILE = Path(__file__).parents[1], "engine.py"  # of the room that is one


class Kind(Enum):
    """What a part of a rank's step is to the other ranks."""

    WORK = "work"
    FORWARD = "forward"  # the last part of a micro-batch's pass: what it made is there at its end
    BACKWARD = "backward"
    BEFORE = "before"  # the part at whose end such a pass begins
    MESSAGE = "message"  # to or from neighbouring stages
    MEETING = "meeting"  # a collective


WAITS = (Kind.MESSAGE, Kind.MEETING)


class Part(NamedTuple):
    """A part of a rank's step. The parts of a step follow one another without a gap.

    Attributes:
        phase: the instrument's number of what its time is counted as.
        name: of a message what it sends and receives, such as "forward-send-backward-recv"; of a meeting the
            collective.
    """

    kind: Kind
    phase: int
    name: str = ""


class RankStep(NamedTuple):
    """A step of one rank, with the time since the step before.

    Attributes:
        parts: one object for all steps with the same parts.
        durs_ns: of each of them; none is below 0.
        begin_ns: when the step before was over, on the clock of the rank's machine.
    """

    rank: int
    iteration: int
    parts: tuple[Part, ...]
    durs_ns: Sequence[int]
    begin_ns: int


# Shares of a profile: of a forward pass in layers, and in their core attention; of passes in Python.
LAYERS, CORE, PYTHON = "layers", "core", "python"


class Layout(NamedTuple):
    """The ranks of a job, and the order in which a stage takes its micro-batches.

    Attributes:
        stages: each rank's place in the pipeline.
        clocks: the machine of each rank.
        schedule: "1f1b", "interleaved", or None without a pipeline; another one is not known.
        chunks: of the model on each stage; 1 unless interleaved.
        group: micro-batches of a chunk that follow one another, where interleaved.
        overlaps: whether messages pass beside computing, so that no part of a step is the wait for them.
        tensor_parallel: so many ranks that follow one another work on the same.
        agreement: the meeting of all ranks, or of those of one replica.
        embeddings: that of the first and the last stage.
        strict: meetings that nobody leaves before all have come.
        phases: names that changes may use, each with the numbers of its phases.
        layers: of the model on each stage, by chunk; () where that is not known.
        data_parallel: replicas of the model; 0 for as many as a stage has groups of `tensor_parallel` ranks.
        exchanges: phases in which replicas exchange gradients and parameters.
        operators: by `LAYERS`, `CORE` and `PYTHON` and by stage, shares that a profile tells.
        recompute: "full", "selective" or "none", what is recomputed now.
        micro_batch: samples of one; 0 where that is not known.
        since: steps before this iteration only tell what a rank took earlier.
        pauses_ns: by name, what stands between two steps now and then, per step on average.
    """

    stages: Mapping[int, int]
    clocks: Mapping[int, str]
    schedule: str | None
    chunks: int = 1
    group: int = 1
    overlaps: bool = False
    tensor_parallel: int = 1
    agreement: str = ""
    embeddings: str = ""
    strict: frozenset[str] = frozenset()
    phases: Mapping[str, tuple[int, ...]] = {}
    layers: Sequence[Sequence[int]] = ()
    data_parallel: int = 0
    exchanges: frozenset[int] = frozenset()
    operators: Mapping[str, Mapping[int, float]] = {}
    recompute: str = "none"
    micro_batch: int = 0
    since: int = 0
    pauses_ns: Mapping[str, float] = {}


class Cause(Enum):
    """Why time is on a critical path."""

    USUAL = "usual work"  # no longer than the others of its stage take for the same part, if there are any
    LONGER = "longer"  # than the same part takes the others of its stage: it has more to do, or is slower
    WAITS = "waits"  # in a collective; for whom is not known
    TRANSFER = "transfer"  # a message, or a collective once the last one has come


Entry = tuple[int | None, int]  # a rank, None for a message or an exchange; and a phase
Blamed = tuple[int | None, int, Cause]


class PathTimes(NamedTuple):
    """The critical path of one step, or of several together: nanoseconds by rank, phase and cause.

    Attributes:
        steps: how many steps these are.
        stages: each rank's place in the pipeline.
        causes_ns: time on the path; adds up to the time from the end of one step to that of the next.
        own_ns: everything that each rank does in these steps except waiting; for None, the messages and
            exchanges of a mean rank.
    """

    steps: int
    stages: Mapping[int, int]
    causes_ns: Counter[Blamed]
    own_ns: Counter[Entry]

    @property
    def on_ns(self) -> Counter[Entry]:
        """Time on the path, whatever the cause."""
        found = Counter[Entry]()
        for (rank, phase, _), ns in self.causes_ns.items():
            found[rank, phase] += ns
        return found

    @property
    def total_ns(self) -> int:
        """The time from the end of the step before the first to the end of the last."""
        return sum(self.causes_ns.values())

    @property
    def slopes(self) -> dict[Entry, float]:
        """What a step loses by each nanosecond that a rank takes longer in a phase, spread over all parts of
        it as its time is; for None, that every rank's messages or exchanges take longer. The slope is that to
        the longer side, along one path: where two are equally long, less time gains nothing, and where the
        other one is longer by less than what is added, that costs more.
        """
        on_ns = self.on_ns
        return {entry: on_ns[entry] / own_ns for entry, own_ns in self.own_ns.items() if own_ns}


def together(paths: Sequence[PathTimes]) -> PathTimes:
    """Several paths as one, at least one."""
    causes_ns, own_ns = Counter[Blamed](), Counter[Entry]()
    for path in paths:
        causes_ns.update(path.causes_ns)
        own_ns.update(path.own_ns)
    return PathTimes(len(paths), paths[0].stages, causes_ns, own_ns)


class Gain(NamedTuple):
    """What one step gains by a change.

    Attributes:
        gain_ns: by how much sooner it ends.
        longer_ns: how much longer than that the ranks took that are changed: of several, the one that most.
    """

    iteration: int
    gain_ns: int
    longer_ns: int


class NotKnownError(Exception):
    """Why these steps cannot be replayed."""


class DrawnStep(NamedTuple):
    """A step of one rank, to be drawn.

    Attributes:
        is_predicted: it is after changes; else as it was recorded.
        begin_ns: when the step before was over.
        ends_ns: of each part; all ranks are on one clock.
    """

    rank: int
    stage: int
    iteration: int
    is_predicted: bool
    parts: tuple[Part, ...]
    begin_ns: int
    ends_ns: Sequence[int]


class Predicts(Protocol):
    """Something recorded that is replayed with changes."""

    def predict(
        self,
        changes: Sequence[Change],
        doubt: Doubt = ...,
        beside: Sequence[Predicts] = (),
        operators: Mapping[str, Mapping[int, float]] = ...,
    ) -> Prediction:
        """The usual step, or what else a prediction is of, after all these changes. Raises MissingRecordError
        where a record for that is missing, PerfError for what is impossible.

        Args:
            beside: runs of other layouts, which tell what a layer, a message, or an exchange of gradients
                takes.
            operators: see `Layout`.
        """


class Replays(Predicts, Protocol):
    """Steps that can be replayed: those whose records do not contradict one another."""

    def paths(self) -> list[PathTimes]:
        """The critical path of each step, by iteration."""

    def slopes(self) -> Mapping[Entry, float]:
        """What a nanosecond more of a rank in a phase costs a mean step; see `PathTimes.slopes`."""

    def gains(self, ranks: Collection[int], phase: int) -> list[Gain]:
        """For each step what it gains, by iteration, if these ranks take as long in that phase as the others
        of their stages; none where there are no others.
        """

    def levelled(self, ranks: Collection[int], like: Collection[int]) -> list[Gain]:
        """The same if each pass of these ranks takes as long as the mean of the same pass of those `like`
        which they are to be; none where some have other passes.
        """

    def drawn(self, changes: Sequence[Change]) -> list[DrawnStep]:
        """Every rank in the step of the median time, before and after these changes. Raises as `predict`."""


class Replayable(Protocol):
    """What an instrument hands over of a session, so that changes of it can be predicted."""

    @property
    def phases(self) -> Mapping[str, tuple[int, ...]]:
        """Names that changes may use, each with the numbers of its phases."""

    @property
    def checks(self) -> Mapping[str, Check] | None:
        """What else may be changed; None for what a training has."""

    @property
    def of(self) -> str:
        """What a predicted time is of: "step", "session"."""

    @property
    def perfect(self) -> str:
        """When the ceiling would be reached, in words."""

    def replays(self) -> Predicts:
        """What was recorded. Raises MissingRecordError where there is nothing that can be replayed."""

    def drift(self) -> tuple[float, str]:
        """Standard deviation between the usual steps of two runs of this configuration, as a share, and
        where that is from.
        """

    def usual_ns(self, text: str) -> float:
        """The usual step of the whole session, with the pauses that changes of this text are about: what a
        prediction is checked against. Raises MissingRecordError where it has no steps that tell.
        """

    def shape(self, changes: Sequence[Change]) -> Mapping[str, object]:
        """By what a run with these changes is known to be one: sizes of its model, of its batches, of its
        layout. None for what is not known, or what the changes leave open.
        """

    def flag_of(self, change: Change) -> str:
        """The host's own option for that change; "" where there is none."""

    def rates(self, prediction: Prediction) -> Mapping[str, float]:
        """By name with unit, what the host's integers make of the predicted step: tokens/s, MFU."""

    def items(self, changes: Sequence[Change]) -> Iterable[Drawn]:
        """What a trace has of a usual step, recorded and after these changes. Raises as `Replays.predict`."""

    def best(self, doubt: Doubt) -> Sequence[Offer]:
        """The changes that gain the most, at most ten, the best first."""


class Engine(FlowEngine, Protocol):
    """The interface of the room `whatif`."""

    def changes(
        self,
        words: Sequence[str],
        phases: Mapping[str, tuple[int, ...]],
        checks: Mapping[str, Check] | None = ...,
    ) -> list[Change]:
        """Words such as `rank=3 forward*=peers m=16`. Raises PerfError for one that means nothing."""

    def doubt(self, directory: Path, drift: tuple[float, str]) -> Doubt:
        """What is known of predictions of runs in this directory, by what became of earlier ones."""

    def replays_of(self, layout: Layout, steps: Iterable[RankStep]) -> Replays:
        """The steps of which every rank is there. Raises NotKnownError where there is none, and where it is
        not known what waited for what.
        """


@cache
def engine() -> Engine | None:
    """The engine; None where its room is not there."""
    rooms = [path.parent.name for path in _PACKAGE.glob(f"*/{_FILE}")]
    return importlib.import_module(f"flagscale_perf.{rooms[0]}.engine") if rooms else None
