"""What a queue's run is predicted to take after a change, against the same run simulated with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.predictions import Doubt, MissingRecordError, Prediction
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.trace.analysis.changeable import ChangeableQueue
from flagscale_perf.whatif.changes import changes
from tests.trace_runs import MS, Job

ROWS, PUT_MS, GET_MS, POLL_MS = 8, 2, 3, 1


def asking(producers: int = 1, make_ms: int = 60, train_ms: int = 20, batches: int = 40) -> Job:
    """Producers put a batch whenever they have made one, as fast as they can; a trainer asks for the next."""
    job = Job()
    makers = [job.process("Rollout", 10 + number) for number in range(producers)]
    trainer = job.process("Trainer", 30)
    free_ms, ready = [0] * producers, list[tuple[int, int]]()
    for number in range(batches):
        who = number % producers
        rows = range(number * ROWS, (number + 1) * ROWS)
        begin = free_ms[who] + make_ms
        job.put(makers[who], begin * MS, rows, total_ns=PUT_MS * MS, notify_ns=0, tags_ns=0)
        free_ms[who] = begin + PUT_MS
        ready.append((free_ms[who], number))
    at = 1
    for there, number in sorted(ready):
        rows = range(number * ROWS, (number + 1) * ROWS)
        told = max(at, there) + POLL_MS
        job.wait(trainer, "actor", at * MS, ROWS, total_ns=(told - at) * MS)
        job.get(trainer, told * MS, rows, total_ns=GET_MS * MS)
        at = told + GET_MS + train_ms
    return job


def in_calls(make_ms: int = 60, train_ms: int = 20, steps: int = 20, ahead: int = 0) -> Job:
    """A driver that lets a process generate for a step once the one `ahead` + 1 before is trained."""
    job = Job()
    rollout, actor = job.process("Rollout", 10), job.process("Actor", 20)
    trained, made = [0] * (ahead + 1), 0
    for step in range(steps):
        rows = range(step * ROWS, (step + 1) * ROWS)
        start = max(made, trained[step] + 1 if step > ahead else made)
        call = job.coming(rollout, 1)
        put = start + make_ms
        job.put(rollout, put * MS, rows, total_ns=PUT_MS * MS, notify_ns=0, tags_ns=0, call=call)
        made = put + PUT_MS
        job.call(rollout, "generate", start * MS, total_ns=(made - start) * MS, rows=ROWS, step=step)
        begin = max(made, trained[-1]) + 1
        call = job.coming(actor, 1)
        job.get(actor, begin * MS, rows, total_ns=GET_MS * MS, call=call)
        trained.append(begin + GET_MS + train_ms)
        job.call(actor, "train", begin * MS, total_ns=(trained[-1] - begin) * MS, rows=ROWS, step=step)
    return job


def of(directory: Path, job: Job) -> ChangeableQueue:
    directory.mkdir()
    return ChangeableQueue(open_session(job.write(directory)))


def predicted(own: ChangeableQueue, text: str) -> Prediction:
    return own.replays().predict(changes([text], own.phases, own.checks), Doubt())


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        (asking(), "producers=x2", asking(producers=2)),
        (asking(), "producers=x3", asking(producers=3)),  # beyond two the trainer is the slower end
        (asking(train_ms=70), "producers=x2", asking(train_ms=70, producers=2)),
        (asking(), "Rollout*=0.5", asking(make_ms=30)),
        (asking(), "Trainer*=0.5", asking(train_ms=10)),
        (asking(producers=2), "Trainer+=40ms", asking(producers=2, train_ms=60)),
        (in_calls(), "generate*=0.5", in_calls(make_ms=30)),
        (in_calls(), "train*=2", in_calls(train_ms=40)),
        (in_calls(), "capacity=+1", in_calls(ahead=1)),
        (in_calls(train_ms=80), "capacity=+1", in_calls(train_ms=80, ahead=1)),
    ],
)
def test_a_change_is_as_the_run_with_it(tmp_path: Path, before: Job, text: str, after: Job) -> None:
    own = of(tmp_path / "before", before)
    found, true_ns = predicted(own, text), of(tmp_path / "after", after).usual_ns(text)
    assert found.measured_ns == own.usual_ns(text)
    assert found.predicted_ns == pytest.approx(true_ns, abs=1.5 * MS)
    assert found.low_ns <= true_ns <= found.high_ns
    assert found.is_gain is (true_ns < found.measured_ns - 2 * MS)


def test_idle_share_and_staleness_come_with_it(tmp_path: Path) -> None:
    own = of(tmp_path / "before", in_calls(train_ms=80))
    now, ahead = predicted(own, "generate*=1"), predicted(own, "capacity=+1")
    waits, age = own.rates(now).values()
    assert (waits, age) == (pytest.approx(100 * 64 / 147, abs=3), pytest.approx(0, abs=0.1))
    assert own.rates(ahead)["age, steps"] == pytest.approx(1, abs=0.1)
    assert own.rates(ahead)["consumer waits, %"] < waits


def test_one_piece_a_step_is_shared_and_that_is_not_sure(tmp_path: Path) -> None:
    own = of(tmp_path / "before", in_calls())
    found = predicted(own, "producers=x2")
    assert found.measured_ns - found.predicted_ns == pytest.approx(31 * MS, abs=MS)
    assert found.parts["replay"] == pytest.approx(31 * MS, abs=MS)


def test_a_unit_more_takes_its_part_of_the_bytes(tmp_path: Path) -> None:
    """A unit takes 1 ms and 10 ns a byte."""

    def job(units: int) -> Job:
        made = Job()
        maker, trainer = made.process("Rollout", 10), made.process("Trainer", 30)
        unit, at = made.name(trainer, "storage_0"), 0
        others = [made.name(trainer, f"storage_{number}") for number in range(1, units)]
        for number in range(30):
            rows, size = range(number * ROWS, (number + 1) * ROWS), (1 + number % 4) * 1_000_000
            made.put(maker, at * MS, rows, total_ns=MS, notify_ns=0, tags_ns=0, unit_ns=None)
            unit_ns = MS + 10 * size // units
            made.wait(trainer, "actor", (at + 1) * MS, ROWS, total_ns=MS)
            made.get(
                trainer,
                (at + 2) * MS,
                rows,
                total_ns=unit_ns + MS,
                size_bytes=size,
                unit_ns=unit_ns,
                slowest_unit=(unit, *others)[number % units],
                slowest_unit_ns=unit_ns,
            )
            at += 4 + unit_ns // MS
        return made

    own = of(tmp_path / "before", job(2))
    found = predicted(own, "units=+1")
    saved_ns = 10 * 2_500_000 * (1 / 2 - 1 / 3)
    # the producer here does not wait: what is saved is the trainer's own
    assert found.measured_ns - found.predicted_ns <= saved_ns * 1.1
    assert found.kind == "B" and own.flag_of(changes(["units=+1"], own.phases, own.checks)[0])


def test_no_number_where_there_is_none(tmp_path: Path) -> None:
    own = of(tmp_path / "asking", asking())
    for text, why in (
        ("units=+1", "puts and gets of 3 sizes with their units' times"),
        ("capacity=+1", "wait for no step"),
        ("units=2", "=.N: so many storage units more"),
        ("m=16", "is nothing that can be changed"),
    ):
        with pytest.raises(PerfError, match=why):
            predicted(own, text)
    job = asking()
    job.records = [one for one in job.records if type(one).__name__ != "WaitRecord"]
    with pytest.raises(MissingRecordError, match="who waits for whom"):
        of(tmp_path / "silent", job).replays()


def test_the_best_changes_come_first(tmp_path: Path) -> None:
    best = of(tmp_path / "asking", asking()).best(Doubt())
    assert {one.change for one in best[:2]} == {"producers=x2", "Rollout*=0.5"}
    assert [one.gain for one in best] == sorted((one.gain for one in best), reverse=True)
