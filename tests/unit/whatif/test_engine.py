"""Gains and paths against the same pipeline simulated without what was planted, to the nanosecond."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from flagscale_perf.analysis.replays import Gain, NotKnownError, Part, RankStep
from flagscale_perf.whatif.engine import replays_of
from flagscale_perf.whatif.schedules import Pass, Shape
from tests.timed_pipelines import BACKWARD, BEFORE_NS, BETWEEN_NS, FORWARD, OPTIMIZER, TAIL_NS, Pipeline

MS = 1_000_000
SHAPES = [
    Shape(1, 4),
    Shape(2, 2),
    Shape(4, 3),  # all micro-batches go forward before the first one comes back
    Shape(4, 12),
    Shape(16, 40),
    Shape(2, 4, 2, 2),
    Shape(3, 7, 3, 4),
    Shape(4, 8, 4, 4),
    Shape(4, 4, 2, 4),
    Shape(8, 16, 2, 8),
]


def drawn(shape: Shape, replicas: int, seed: int, planted: tuple[int, int], longer_ns: int) -> Pipeline:
    """Passes of 10 to 50 ms; one rank's forward passes take longer. All replicas are alike else."""
    times = random.Random(seed)
    base = {
        (stage, one): times.randrange(10 * MS, 50 * MS)
        for stage in range(shape.stages)
        for one in (
            Pass(way, chunk, batch)
            for way in (True, False)
            for chunk in range(shape.chunks)
            for batch in range(shape.batches)
        )
    }

    def pass_ns(stage: int, replica: int, one: Pass) -> int:
        is_late = one.is_forward and (stage, replica) == planted
        return base[stage, one] + longer_ns * is_late

    return Pipeline(shape, replicas, pass_ns, message_ns=200_000)


@pytest.mark.parametrize("overlaps", [False, True], ids=["waiting", "overlapping"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_the_gain_is_that_of_the_pipeline_without_the_lateness(
    shape: Shape, seed: int, overlaps: bool
) -> None:
    """On four machines whose clocks are hours apart. What a message that passes beside computing takes is not
    known, so these take nothing.
    """
    draw = random.Random(seed)
    late = draw.randrange(shape.stages), draw.randrange(3)
    clocks_ns = [draw.randrange(-(10**13), 10**13) for _ in range(4)]
    found = []
    for longer_ns in (0, 15 * MS):
        pipeline = drawn(shape, 3, seed, late, longer_ns)
        if overlaps and shape.chunks > 1:
            pipeline.overlaps, pipeline.message_ns = True, 0
        pipeline.clocks_ns, pipeline.machine_of = clocks_ns, lambda rank: rank % 4
        found.append(pipeline.run())
    (_, even_ns), (steps, late_ns) = found
    replays = replays_of(pipeline.layout, steps)
    (gain,) = replays.gains([late[0] * 3 + late[1]], FORWARD)
    passes = shape.batches * shape.chunks
    assert gain == Gain(7, late_ns - even_ns, passes * 15 * MS)
    (path,) = replays.paths()
    assert path.total_ns == late_ns


@pytest.mark.parametrize("overlaps", [False, True], ids=["waiting", "overlapping"])
@pytest.mark.parametrize("shape", [Shape(4, 6), Shape(2, 4, 2, 2), Shape(3, 6, 2, 3)], ids=str)
def test_a_nanosecond_more_on_the_path_is_a_nanosecond_of_the_step(shape: Shape, overlaps: bool) -> None:
    pipeline = drawn(shape, 2, 5, (0, 0), 0)
    pipeline.overlaps, drawn_ns = overlaps and shape.chunks > 1, pipeline.pass_ns
    apart = {  # so that no two ways are equally long
        (stage, replica, one): drawn_ns(stage, replica, one) + replica * 1013 + stage * 7
        for stage in range(shape.stages)
        for replica in range(2)
        for one in (
            Pass(way, chunk, batch)
            for way in (True, False)
            for chunk in range(shape.chunks)
            for batch in range(shape.batches)
        )
    }
    pipeline.pass_ns = lambda *where: apart[where]
    steps, step_ns = pipeline.run()
    (path,) = replays_of(pipeline.layout, steps).paths()
    lost: Counter[tuple[int | None, int]] = Counter()
    for where, dur_ns in list(apart.items()):
        apart[where] += 1
        if pipeline.run()[1] > step_ns:
            stage, replica, one = where
            lost[stage * 2 + replica, FORWARD if one.is_forward else BACKWARD] += dur_ns
        apart[where] = dur_ns
    own = {
        entry: ns
        for entry, ns in path.on_ns.items()
        if entry[0] is not None and entry[1] in (FORWARD, BACKWARD)
    }
    assert own == lost
    assert path.total_ns == step_ns


@pytest.mark.parametrize(("stages", "batches"), [(1, 8), (2, 8), (4, 16), (16, 256)])
def test_the_replayed_step_of_even_stages_is_that_of_the_closed_form(stages: int, batches: int) -> None:
    """(m + p - 1) (f + b): of a late rank's step, what is left without its lateness."""
    even = Pipeline(
        Shape(stages, batches), 2, lambda stage, replica, one: pass_of(one) + 5 * MS * (replica == 1)
    )
    steps, step_ns = even.run()
    late = [
        gain
        for rank in range(1, 2 * stages, 2)
        for gain in replays_of(even.layout, steps).gains([rank], FORWARD)
    ]
    assert step_ns > in_turn(stages, batches, 1)
    replays = replays_of(even.layout, steps)
    every = {rank for rank in range(1, 2 * stages, 2)}
    (forward,) = replays.gains(every, FORWARD)
    assert all(gain.gain_ns <= forward.gain_ns for gain in late)
    both = Pipeline(Shape(stages, batches), 2, lambda stage, replica, one: pass_of(one))
    assert both.run()[1] == in_turn(stages, batches, 1)


@pytest.mark.parametrize("chunks", [2, 4])
def test_the_bubble_of_interleaved_stages_is_that_of_the_closed_form(chunks: int) -> None:
    """(p - 1) / (v m) of what is computed."""
    stages, batches = 4, 16
    pipeline = Pipeline(
        Shape(stages, batches, chunks, stages), 1, lambda *where: pass_of(where[2]), overlaps=True
    )
    computed_ns = batches * chunks * (pass_of(Pass(True, 0, 0)) + pass_of(Pass(False, 0, 0)))
    bubble = pipeline.run()[1] - TAIL_NS - computed_ns
    assert bubble / computed_ns == pytest.approx((stages - 1) / (chunks * batches), rel=0.001)


def pass_of(one: Pass) -> int:
    return 20 * MS if one.is_forward else 40 * MS


def in_turn(stages: int, batches: int, chunks: int) -> int:
    """The step, with what comes before each pass."""
    passes = (batches * chunks + stages - 1) * (60 * MS + 2 * BEFORE_NS)
    return passes + TAIL_NS + BETWEEN_NS


def test_a_late_rank_beside_a_slower_stage_costs_nothing() -> None:
    def pass_ns(stage: int, replica: int, one: Pass) -> int:
        return (
            10 * MS + 40 * MS * (stage == 3) + 10 * MS * ((stage, replica) == (1, 0) and not one.is_forward)
        )

    pipeline = Pipeline(Shape(4, 16), 2, pass_ns)
    steps, step_ns = pipeline.run()
    (gain,) = replays_of(pipeline.layout, steps).gains([2], BACKWARD)
    assert gain.longer_ns == 16 * 10 * MS
    assert 0 <= gain.gain_ns <= 10 * MS, "its last micro-batch"
    assert step_ns > 16 * 60 * MS


def test_ranks_without_peers_have_no_gain_that_is_known() -> None:
    pipeline = drawn(Shape(2, 4), 1, 1, (0, 0), 0)
    assert replays_of(pipeline.layout, pipeline.run()[0]).gains([0], FORWARD) == []


def with_(steps: list[RankStep], rank: int, **changes: object) -> list[RankStep]:
    return [one._replace(**changes) if one.rank == rank else one for one in steps]


def test_why_steps_are_not_replayed() -> None:
    pipeline = drawn(Shape(2, 4), 2, 1, (0, 0), 0)
    steps, _ = pipeline.run()
    layout = pipeline.layout
    first = steps[0]
    cases = {
        "no step has the marks of every rank": (layout, steps[1:]),
        "stages have different numbers of ranks": (layout._replace(stages={0: 0, 1: 0, 2: 1}), steps),
        "the schedule 'dualpipev' is not known": (layout._replace(schedule="dualpipev"), steps),
        "in the order of its schedule": (
            layout,
            with_(steps, 0, parts=(*first.parts[:-4], *first.parts[-3:]), durs_ns=first.durs_ns[1:]),
        ),
        "end before what they wait for": (layout, with_(steps, 0, begin_ns=first.begin_ns + 10**10)),
        "no messages both ways tell the clock of machine1": (
            layout._replace(
                clocks={0: "machine0", 1: "machine1", 2: "machine0", 3: "machine1"}, strict=frozenset()
            ),
            steps,
        ),
    }
    for why, (known, own) in cases.items():
        with pytest.raises(NotKnownError, match=why):
            replays_of(known, own)


def test_steps_with_other_parts_are_replayed_by_themselves() -> None:
    """As where a replica does something once: here it takes no time, and changes nothing."""
    pipeline = drawn(Shape(2, 4), 3, 1, (1, 1), 15 * MS)
    both = []
    for iteration in (7, 8, 9):
        steps, _ = pipeline.run(iteration)
        other = steps[2]
        parts = (*other.parts[:1], Part(other.parts[0].kind, OPTIMIZER), *other.parts[1:])
        durs_ns = [other.durs_ns[0], 0, *other.durs_ns[1:]]
        both += with_(steps, 2, parts=parts, durs_ns=durs_ns) if iteration == 8 else steps
    gains = replays_of(pipeline.layout, both).gains([4], FORWARD)
    assert [gain.iteration for gain in gains] == [7, 8, 9]
    assert len({replace_iteration(gain) for gain in gains}) == 1


def replace_iteration(gain: Gain) -> Gain:
    return gain._replace(iteration=0)
