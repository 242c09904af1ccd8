"""The engine beside a simulator that shares nothing with it: exact to the nanosecond."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from statistics import mean, median

import pytest

from flagscale_perf.analysis.replays import MissingRecordError, Prediction
from flagscale_perf.whatif.changes import changes
from flagscale_perf.whatif.engine import replays_of
from tests.simulated_pipelines import BEFORE_NS, NAMES, Job, drawn, layered, step_ns, steps_of

MS = 1_000_000
SEEDS = range(16)
ROUNDED_NS = 200  # of passes through a number of layers that was not recorded, less than a nanosecond each


def predicted(job: Job, text: str) -> Prediction:
    steps = [step._replace(iteration=iteration) for step in steps_of(job) for iteration in (1, 2, 3)]
    return replays_of(job.layout, steps).predict(changes(text.split(), NAMES))


def no(job: Job) -> Job:
    return job


def half_forward(job: Job) -> Job:
    return replace(
        job, forward_ns=lambda stage, *key: job.forward_ns(stage, *key) // (2 if stage == 0 else 1)
    )


def twice_backward(job: Job) -> Job:
    return replace(
        job,
        backward_ns=lambda stage, replica, *key: (
            job.backward_ns(stage, replica, *key)
            * (2 if stage * job.replicas + replica == job.ranks - 1 else 1)
        ),
    )


def longer_forward(job: Job) -> Job:
    return replace(
        job,
        forward_ns=lambda stage, replica, *key: (
            job.forward_ns(stage, replica, *key) + 8 * MS * (stage + replica == 0)
        ),
    )


def like_peers(job: Job) -> Job:
    def forward_ns(stage: int, replica: int, *key: int) -> int:
        others = [job.forward_ns(stage, each, *key) for each in range(1, job.replicas)]
        return int(median(others)) if stage + replica == 0 else job.forward_ns(stage, replica, *key)

    return replace(job, forward_ns=forward_ns)


def equal(job: Job) -> Job:
    def alike(pass_ns: Callable[..., int]) -> Callable[..., int]:
        means = {
            stage: round(
                mean(
                    pass_ns(stage, replica, chunk, batch)
                    for replica in range(job.replicas)
                    for chunk in range(job.chunks)
                    for batch in range(job.batches)
                )
            )
            for stage in range(job.stages)
        }
        return lambda stage, *_: means[stage]

    return replace(job, forward_ns=alike(job.forward_ns), backward_ns=alike(job.backward_ns))


CHANGES: dict[str, tuple[str, Callable[[Job], Job]]] = {
    "nothing": ("forward*=1", no),
    "a stage's forward passes": ("stage=0 forward*=0.5", half_forward),
    "the last rank's backward passes": ("rank=LAST backward*=2", twice_backward),
    "longer forward passes": ("rank=0 forward+=8ms", longer_forward),
    "no loading of data": ("data_loading=0", lambda job: replace(job, data_ns=lambda *_: 0)),
    "optimizer": (
        "optimizer*=0.5",
        lambda job: replace(job, optimizer_ns=lambda rank: job.optimizer_ns(rank) // 2),
    ),
    "between steps": (
        "between_steps+=5ms",
        lambda job: replace(job, between_ns=lambda rank: job.between_ns(rank) + 5 * MS),
    ),
    "messages": ("p2p*=0.5", lambda job: replace(job, message_ns=job.message_ns // 2)),
    "gradients": ("grad_comm=0", lambda job: replace(job, sync_ns=0)),
    "as the peers": ("rank=0 forward=peers", like_peers),
    "equal": ("work=equal", equal),
    "two": ("stage=0 forward*=0.5 rank=LAST backward*=2", lambda job: twice_backward(half_forward(job))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_durations_is_exact(name: str) -> None:
    text, change = CHANGES[name]
    for seed in SEEDS:
        job = drawn(random.Random(seed))
        if name == "as the peers" and job.replicas == 1:
            continue
        found = predicted(job, text.replace("LAST", str(job.ranks - 1)))
        assert found.measured_ns == step_ns(job), seed
        assert found.predicted_ns == step_ns(change(job)), (seed, job)


BASE = layered((3, 4, 4, 5), 4, 8)  # three kinds of stages: one layer, the embedding and the head are told
OTHERS: dict[str, Job] = {
    "m=1": layered((3, 4, 4, 5), 4, 1),
    "m=3": layered((3, 4, 4, 5), 4, 3),
    "m=64": layered((3, 4, 4, 5), 4, 64),
    "layers=4,4,4,4": layered((4,) * 4, 4, 8),
    "layers=5,4,4,3": layered((5, 4, 4, 3), 4, 8),
    "pp=2": layered((8, 8), 2, 8),
    "pp=8": layered((2,) * 8, 8, 8),
    "pp=16 m=32": layered((1,) * 16, 16, 32),
    "pp=2 layers=7,9 m=5": layered((7, 9), 2, 5),
    "dp=2 m=8": layered((3, 4, 4, 5), 4, 8, replicas=2),
    "dp=2": layered((3, 4, 4, 5), 4, 4, replicas=2),
    "dp=4 pp=2 m=6": layered((8, 8), 2, 6, replicas=4),
}


@pytest.mark.parametrize("text", OTHERS)
def test_another_pipeline_is_exact(text: str) -> None:
    found = predicted(BASE, text)
    assert found.measured_ns == step_ns(BASE)
    assert found.predicted_ns == pytest.approx(step_ns(OTHERS[text]), abs=ROUNDED_NS)


def test_another_interleaving_is_exact() -> None:
    two, four = (layered((16 // (4 * chunks),) * 4 * chunks, 4, 8) for chunks in (2, 4))
    for one, other, text in (
        (two, four, "v=4"),
        (four, two, "v=2"),
        (two, layered((4,) * 4, 4, 8), "schedule=1f1b"),
    ):
        assert predicted(one, text).predicted_ns == pytest.approx(step_ns(other), abs=ROUNDED_NS), text


def test_longer_passes_in_another_pipeline() -> None:
    """A change of durations holds in the pipeline that another change asks for."""
    forward_ns = BASE.forward_ns
    slow = replace(
        OTHERS["m=64"], forward_ns=lambda stage, *key: forward_ns(stage, *key) * (2 if stage == 1 else 1)
    )
    assert predicted(BASE, "stage=1 forward*=2 m=64").predicted_ns == step_ns(slow)


@pytest.mark.parametrize("late", range(4))
def test_a_late_optimizer_holds_up_its_replica_and_then_the_last_stage(late: int) -> None:
    """Replicas agree each for itself; then the last stage averages its losses over them."""
    usual = replace(layered((2, 2), 2, 4, replicas=2), losses_ns=1 * MS)
    job = replace(usual, optimizer_ns=lambda rank: (5 + 120 * (rank == late)) * MS)
    assert step_ns(job) > step_ns(usual) + 50 * MS
    assert predicted(job, f"rank={late} optimizer-=120ms").predicted_ns == step_ns(usual)
    assert predicted(usual, f"rank={late} optimizer+=120ms").predicted_ns == step_ns(job)


@pytest.mark.parametrize("stages", [2, 4, 16])
@pytest.mark.parametrize("batches", [16, 64, 256])
def test_even_stages_take_the_known_time(stages: int, batches: int) -> None:
    """(m + p - 1)(f + b)."""
    job = Job(stages, batches, lambda *_: 10 * MS, lambda *_: 20 * MS)
    each_ns = 30 * MS + 2 * BEFORE_NS
    found = predicted(job, "forward*=2")
    assert found.measured_ns == (batches + stages - 1) * each_ns
    assert found.predicted_ns == (batches + stages - 1) * (each_ns + 10 * MS)


@pytest.mark.parametrize(("stages", "chunks"), [(2, 2), (4, 2), (4, 4), (8, 3)])
def test_the_bubble_of_interleaved_chunks_is_the_known_one(stages: int, chunks: int) -> None:
    """(p - 1) / (v m) of the work."""
    batches = 4 * stages
    job = Job(stages, batches, lambda *_: 10 * MS, lambda *_: 20 * MS, chunks=chunks)
    work_ns = batches * chunks * (30 * MS + 2 * BEFORE_NS)
    found = predicted(job, "forward*=1")
    bubble = (found.predicted_ns - work_ns) / work_ns
    assert bubble == pytest.approx((stages - 1) / (chunks * batches))


@pytest.mark.parametrize(
    "text",
    [
        "recompute=full", "recompute=none", "mbs=4", "tp=2", "cp=2", "ep=2", "seq=8192", "overlap=on",
        "fp8=on", "checkpoint=async", "checkpoint=0", "evaluation*=0.5", "gc=0", "rank=0 forward=peers",
        "m=16 recompute=full",
    ],
)  # fmt: skip
def test_without_its_record_a_question_gets_no_number(text: str) -> None:
    with pytest.raises(MissingRecordError) as refused:
        predicted(BASE, text)
    assert refused.value.record and refused.value.command


@pytest.mark.parametrize("text", ["pp=2", "pp=8", "layers=4,4,4,4", "v=2"])
def test_without_the_split_of_layers_another_one_gets_no_number(text: str) -> None:
    with pytest.raises(MissingRecordError, match="how many layers each stage has"):
        predicted(replace(BASE, layers=()), text)
