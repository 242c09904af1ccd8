"""The pipeline that changes ask for, and why it is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flagscale_perf.analysis.replays import Change, Layout, MissingRecordError
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.whatif.changes import BATCHES, CHUNKS, LAYERS, REPLICAS, SCHEDULE, STAGES
from flagscale_perf.whatif.schedules import INTERLEAVED, ONE_F_ONE_B, Shape

# Of a step: of a replica's stages, and of all ranks; some seconds.
MOST_PASSES, MOST_OF_ALL = 100_000, 20_000_000


class Target(NamedTuple):
    """A pipeline and its replicas.

    Attributes:
        shape: of each replica.
        replicas: ranks of a stage.
        overlaps: as in `Layout`.
        layers: of each chunk, in the model's order; () where that is not known.
    """

    shape: Shape
    replicas: int
    overlaps: bool
    layers: tuple[int, ...] = ()

    @property
    def samples(self) -> int:
        """What a step trains, in micro-batches of all its ranks of a stage."""
        return self.shape.batches * self.replicas

    @property
    def ranks(self) -> int:
        """Of all stages."""
        return self.shape.stages * self.replicas

    @property
    def places(self) -> int:
        """How many chunks the model has, on all stages together."""
        return self.shape.stages * self.shape.chunks

    def layout(self, recorded: Layout) -> Layout:
        """As the graph is told."""
        stages, count = self.shape.stages, self.replicas
        alone = ONE_F_ONE_B if stages > 1 else None
        return recorded._replace(
            stages={rank: rank // count for rank in range(stages * count)},
            schedule=INTERLEAVED if self.shape.chunks > 1 else alone,
            chunks=self.shape.chunks,
            group=self.shape.group,
            overlaps=self.overlaps,
        )


def recorded_target(layout: Layout, shape: Shape, replicas: int) -> Target:
    """The one that was recorded."""
    layers = (own[chunk] for chunk in range(shape.chunks) for own in layout.layers)
    return Target(shape, replicas, layout.overlaps, tuple(layers))


def target_of(layout: Layout, was: Target, changes: Sequence[Change]) -> Target:
    """What becomes of it by these changes. Raises PerfError for what is impossible, MissingRecordError where
    the layers of each stage are not known.
    """
    asked = {change.name: change.value for change in changes if change.kind == "B"}
    stages = int(asked.get(STAGES, was.shape.stages))
    chunks = _chunks(asked, was.shape.chunks)
    batches, replicas = _batches(layout, was, asked)
    was_even = was.shape.chunks == 1 or was.shape.group == was.shape.stages
    group = min(batches, stages if was_even else was.shape.group) if chunks > 1 else 1
    shape = Shape(stages, batches, chunks, group)
    _check(shape, replicas)
    overlaps = chunks > 1 and (was.overlaps or was.shape.chunks == 1)  # as Megatron does by default
    made = Target(shape, replicas, overlaps)
    same = (stages, chunks) == (was.shape.stages, was.shape.chunks) and LAYERS not in asked
    return made._replace(layers=was.layers if same else _layers(was, made, asked))


def _check(shape: Shape, replicas: int) -> None:
    """Raises PerfError for a pipeline that cannot be, or is too large to be replayed."""
    stages, batches, chunks, group = shape
    if chunks > 1 and stages == 1:
        raise PerfError(f"v={chunks}: without a pipeline nothing is interleaved; give pp=2 or more")
    if chunks > 1 and (0 < batches % group < stages or batches < stages):
        raise PerfError(
            f"m={batches}: an interleaved schedule of {stages} stages takes a multiple of {stages}"
            " micro-batches"
        )
    passes = 2 * stages * chunks * batches
    if passes > MOST_PASSES or passes * replicas > MOST_OF_ALL:
        raise PerfError(
            f"{batches} micro-batches on {stages} stages of {replicas} ranks: a step of {passes * replicas:,}"
            f" passes is not replayed; at most {MOST_PASSES:,} of a replica, and {MOST_OF_ALL:,} in all"
        )


def _chunks(asked: Mapping[str, str], recorded: int) -> int:
    told, schedule = int(asked.get(CHUNKS, 0)), asked.get(SCHEDULE)
    if schedule == ONE_F_ONE_B:
        if told > 1:
            raise PerfError(f"v={told}: 1f1b has one chunk on a stage; write schedule={INTERLEAVED}")
        return 1
    chunks = told or recorded
    if schedule == INTERLEAVED and chunks == 1:
        raise PerfError(f"schedule={INTERLEAVED}: say how many chunks a stage has, such as v=2")
    return chunks


def _batches(layout: Layout, was: Target, asked: Mapping[str, str]) -> tuple[int, int]:
    """Micro-batches of a replica, and ranks of a stage. The global batch stays unless m= says otherwise."""
    before = layout.data_parallel or was.replicas // layout.tensor_parallel
    after = int(asked.get(REPLICAS, before))
    batches, rest = divmod(was.shape.batches * before, after)
    if BATCHES in asked:
        return int(asked[BATCHES]), was.replicas // before * after
    if rest or not batches:
        raise PerfError(
            f"dp={after}: {was.shape.batches * before} micro-batches of a step do not divide among {after}"
            " replicas; give m=, too"
        )
    return batches, was.replicas // before * after


def _layers(was: Target, made: Target, asked: Mapping[str, str]) -> tuple[int, ...]:
    if not was.layers:
        name = next(name for name in (LAYERS, STAGES, CHUNKS, SCHEDULE) if name in asked)
        raise MissingRecordError(
            f"{name}={asked[name]}",
            "how many layers each stage has: the host's own layout is none that is known",
            "train with --num-layers, and --decoder-first-pipeline-num-layers where stages differ",
        )
    total, stages, chunks = sum(was.layers), made.shape.stages, made.shape.chunks
    if LAYERS not in asked:
        if total % made.places:
            raise PerfError(
                f"{total} layers do not divide among {stages} stages{f' of {chunks} chunks' * (chunks > 1)};"
                " say how with layers="
            )
        return (total // made.places,) * made.places
    split = [int(each) for each in asked[LAYERS].split(",")]
    text = f"{LAYERS}={asked[LAYERS]}"
    if len(split) != stages:
        raise PerfError(f"{text}: {len(split)} numbers for {stages} stages; give one for each")
    if sum(split) != total:
        raise PerfError(f"{text}: {sum(split)} layers; the model has {total}")
    if any(each % chunks for each in split):
        raise PerfError(f"{text}: a stage's layers do not divide among its {chunks} chunks")
    return tuple(each // chunks for each in split) * chunks
