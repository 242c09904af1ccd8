"""Changes of what operators do, as far as a profile tells: recomputing, and the size of a micro-batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flagscale_perf.analysis.replays import CORE, LAYERS, PYTHON, Change, Kind, Layout, MissingRecordError
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.whatif.changes import BATCHES
from flagscale_perf.whatif.durations import Lags, put, sums, turns_of
from flagscale_perf.whatif.graph import PASSES, Lane, Parts, shape_of
from flagscale_perf.whatif.replay import Replay, Times
from flagscale_perf.whatif.schedules import Shape, passes_of

RECOMPUTE, SIZE, DATA = "recompute", "mbs", "data_loading"
_AGAIN = {"full": LAYERS, "selective": CORE}  # what is computed again, by what a profile calls it
_TELLING = "marks of phases do not tell"


def checked(layout: Layout, changes: Sequence[Change]) -> list[Change]:
    """Those of operators. Raises MissingRecordError where no profile tells what they would do."""
    own = [change for change in changes if change.kind == "C"]
    for change in own:
        if change.name not in (RECOMPUTE, SIZE) or (change.name == SIZE and not layout.micro_batch):
            raise MissingRecordError(
                change.text,
                f"how operators behave with {change.text}: {_TELLING}",
                f"some steps with {change.text} and --perf-capture-steps 20, for flagscale-perf compare",
            )
        if not layout.operators:
            raise MissingRecordError(
                change.text,
                f"a profile of the operators: {_TELLING}",
                "some more steps with --perf-profile-steps 20-31, into the same --perf-log-dir",
            )
    return own


def graph_of(layout: Layout, shape: Shape, changes: Sequence[Change]) -> list[Change]:
    """What these change of the graph: micro-batches of another size are so many more or fewer, as the global
    batch stays unless `m=` says otherwise. Raises PerfError where they do not divide.
    """
    sizes = [change for change in changes if change.name == SIZE]
    if not sizes or any(change.name == BATCHES for change in changes):
        return []
    samples = shape.batches * layout.micro_batch
    batches, rest = divmod(samples, int(sizes[0].value))
    if rest or not batches:
        raise PerfError(
            f"{sizes[0].text}: {samples} samples of a replica's step are no whole number of micro-batches;"
            " give m=, too"
        )
    return [Change(BATCHES, "=", str(batches), "", "B")]


def growth_of(layout: Layout, changes: Sequence[Change]) -> float:
    """How many times as many samples a micro-batch has."""
    return next((int(one.value) / layout.micro_batch for one in changes if one.name == SIZE), 1.0)


def changed(layout: Layout, replay: Replay, lags: Lags, changes: Sequence[Change]) -> Lags:
    """The lags after changes of operators."""
    if not changes:
        return lags
    made, graph = {lane: own.copy() for lane, own in lags.items()}, replay.arrangement.graph
    stages = range(len(replay.arrangement.ranks))
    for change in changes:
        for lane, parts in graph.parts.items():
            if change.name == SIZE:
                _grow(layout, lane, parts, (made[lane], growth_of(layout, [change])))
            else:
                column = tuple(graph.parts[Lane(lane.column, stage)] for stage in stages)
                shape = shape_of(layout, column)
                _compute_again(layout, lane, shape, (parts, made[lane], change.value))
    return made


def _share(layout: Layout, name: str, stage: int) -> float:
    """Of a stage, or where it was not profiled the mean of those that were."""
    by_stage = layout.operators[name]
    return by_stage.get(stage, float(np.mean([*by_stage.values()])))


def _grow(layout: Layout, lane: Lane, parts: Parts, told: tuple[Times, float]) -> None:
    """What a micro-batch takes but Python's part, its data and its messages, in proportion to its samples."""
    lags_ns, growth = told
    python = _share(layout, PYTHON, lane.stage)
    passes = {part.phase for part in parts if part.kind in PASSES}
    for at, part in enumerate(parts):
        if part.phase in passes:
            lags_ns[at] = (lags_ns[at] * (python + (1 - python) * growth)).astype(np.int64)
        elif part.kind is Kind.MESSAGE or part.phase in layout.phases.get(DATA, ()):
            lags_ns[at] += (lags_ns[at].clip(0) * (growth - 1)).astype(np.int64)


def _compute_again(layout: Layout, lane: Lane, shape: Shape, told: tuple[Parts, Times, str]) -> None:
    """Each backward pass with what it computes again of its forward pass, instead of what it did so far."""
    parts, lags_ns, wanted = told
    shares = {word: _share(layout, name, lane.stage) for word, name in _AGAIN.items()}
    more = shares.get(wanted, 0.0) - shares.get(layout.recompute, 0.0)
    forward, backward = (turns_of(parts, [_phase(parts, kind)]) for kind in PASSES)
    if forward is None or backward is None:
        return
    forth, back, _ = passes_of(shape, lane.stage)
    turn_of = {(one.chunk, one.batch): turn for turn, one in enumerate(forth)}
    own = sums(lags_ns, forward)[[turn_of[one.chunk, one.batch] for one in back]]
    put(lags_ns, backward, np.arange(lags_ns.shape[1]), (sums(lags_ns, backward) + more * own).clip(0))


def _phase(parts: Parts, kind: Kind) -> int:
    return next(part.phase for part in parts if part.kind is kind)
