"""Which functions generate and train, how fast each is, and which of them waits: as it was planted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.trace.analysis.instrument import read_report
from flagscale_perf.trace.analysis.sides import ASKED, NOT_IN_CALLS, Side, Sides
from flagscale_perf.trace.records import VersionsRecord
from tests.trace_runs import MS, Job

ROWS = range(32)


def sides_of(directory: Path, job: Job) -> Sides:
    found = read_report(open_session(job.write(directory)))
    assert found.sides is not None
    return found.sides


def grpo(generate_ms: int, train_ms: int, steps: int = 10, workers: int = 2, ranks: int = 1) -> Job:
    """A driver puts prompts, each generating worker its part of the responses, a scorer gets both, and each
    rank of the trainer all of it, one after another.
    """
    job = Job()
    driver, scorer = job.process("Driver", 1), job.process("Scorer", 2)
    rollout = [job.process("Rollout", 10 + number) for number in range(workers)]
    actors = [job.process("Actor", 20 + number) for number in range(ranks)]
    at_ns, share = 0, len(ROWS) // workers
    for step in range(steps):
        job.put(driver, at_ns, ROWS, names=["prompt"])
        for number, worker in enumerate(rollout):
            own = range(number * share, (number + 1) * share)
            call = job.coming(worker, 2)
            job.get(worker, at_ns + 4 * MS, own, names=["prompt"], call=call)
            job.put(worker, at_ns + (generate_ms - 4) * MS, own, names=["response"], call=call)
            job.call(worker, "generate", at_ns, total_ns=generate_ms * MS, rows=share, step=step)
        at_ns += generate_ms * MS
        call = job.coming(scorer, 2)
        job.get(scorer, at_ns, ROWS, names=["prompt", "response"], call=call)
        job.put(scorer, at_ns + 5 * MS, ROWS, names=["score"], call=call)
        job.call(scorer, "score", at_ns, total_ns=10 * MS, compute_ns=1 * MS, rows=32, step=step)
        at_ns += 10 * MS
        for rank in actors:
            call = job.coming(rank, 1)
            job.get(rank, at_ns, ROWS, names=["prompt", "response", "score"], call=call)
            job.call(rank, "train", at_ns, total_ns=train_ms * MS, rows=32, step=step)
        at_ns += train_ms * MS
        job.clear(driver, at_ns - MS, (0, 32))
    return job


@pytest.mark.parametrize(("generate_ms", "train_ms", "waits"), [(70, 20, "trainer"), (20, 70, "generator")])
def test_the_faster_end_waits_as_long_as_the_other_and_the_scorer_work(
    tmp_path: Path, generate_ms: int, train_ms: int, waits: str
) -> None:
    sides = sides_of(tmp_path, grpo(generate_ms, train_ms))
    per_s = pytest.approx(32 / 0.1)
    expected = Side("generate", 2, per_s, pytest.approx(1 - generate_ms / 100), NOT_IN_CALLS)
    assert sides.generator == expected
    assert sides.trainer == Side("train", 1, per_s, pytest.approx(1 - train_ms / 100), NOT_IN_CALLS)
    assert (sides.waits_more, sides.mean_age, sides.oldest) == (waits, 0, 0)


def test_ranks_that_get_the_same_samples_train_on_each_once(tmp_path: Path) -> None:
    sides = sides_of(tmp_path, grpo(70, 20, ranks=4))
    assert (sides.trainer.processes, sides.trainer.samples_per_s) == (4, pytest.approx(320))


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_asks_for_samples_waits_as_long_as_it_is_told_to(tmp_path: Path, ranks: int) -> None:
    """No function: a rollout puts 8 samples each 100 ms, a trainer asks each 10 ms, and works 30 ms on 8, or
    each of two ranks on 4.
    """
    job = Job()
    rollouts = [job.process("Rollout", 7), job.process("Rollout", 8)]
    trains, each = [job.process("Train", 9 + rank) for rank in range(ranks)], 8 // ranks
    for step in range(20):
        begin_ns = step * 100 * MS
        for number, rollout in enumerate(rollouts):
            first = 8 * step + 4 * number
            job.put(rollout, begin_ns, range(first, first + 4))
        for rank, train in enumerate(trains):
            for asked in range(7):
                job.wait(train, "actor", begin_ns + (40 + asked * 10) * MS, each if asked == 6 else 0)
            first = 8 * step + each * rank
            job.get(train, begin_ns + 102 * MS, range(first, first + each))
    sides = sides_of(tmp_path, job)
    assert sides.generator == Side("Rollout", 2, pytest.approx(80), None, "")
    assert sides.trainer == Side("Train", ranks, pytest.approx(80), pytest.approx(0.61, abs=0.01), ASKED)
    assert sides.waits_more is None


def test_a_part_of_all_calls_tells_no_rates(tmp_path: Path) -> None:
    job = grpo(70, 20)
    job.records = [
        record._replace(weight_milli=10_000) if hasattr(record, "weight_milli") else record
        for record in job.records
    ]
    sides = sides_of(tmp_path, job)
    assert (sides.generator.samples_per_s, sides.trainer.samples_per_s) == (None, None)
    assert sides.waits_more is None


def test_the_head_is_in_the_data(tmp_path: Path) -> None:
    content: dict[str, Any] = read_report(open_session(grpo(70, 20).write(tmp_path))).as_dict()["rl"]
    assert content["generator"]["name"] == "generate"
    assert content["trainer"]["waits_share"] == pytest.approx(0.8)
    assert (content["waits_more"], content["age_steps"]) == ("trainer", {"mean": 0.0, "max": 0})
    assert content["weights_behind_steps"] == {"mean": None, "max": None}


def test_weights_are_as_far_behind_as_their_versions_say(tmp_path: Path) -> None:
    """Half of the samples by weights of the step before, half by weights of two before that."""
    job = Job()
    rollout, train = job.process("Rollout", 1), job.process("Train", 2)
    for step in range(10, 15):
        for half, behind in ((range(4), 1), (range(4, 8), 3)):
            number = job.coming(rollout, 0)
            job.records.append(VersionsRecord(rollout, number, step - behind, step - 1))
            job.put(rollout, step * 100 * MS, half)
        job.get(train, step * 100 * MS + 50 * MS, range(8), step=step)
        job.clear(rollout, step * 100 * MS + 80 * MS, (0, 8))
    sides = sides_of(tmp_path, job)
    assert (sides.mean_behind, sides.most_behind) == (2.0, 3)


def test_where_nobody_gets_samples_there_are_no_ends(tmp_path: Path) -> None:
    job = Job()
    job.put(job.process("D", 1), 0, range(4))
    assert read_report(open_session(job.write(tmp_path))).sides is None
