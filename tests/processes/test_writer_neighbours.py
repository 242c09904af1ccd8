"""Real trainers with their writers in one directory: the second is told of the first, if that lives."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.spine.jsonl import read_records, recall
from flagscale_perf.spine.records import EventRecord, RunHeader
from flagscale_perf.training.records import StepRecord
from tests.processes.trainer import Trainer, trainer, wait_for

TOLD = "another training writes into "


def sessions(directory: Path) -> dict[int | None, tuple[list[int], list[str]]]:
    """By the trainer's pid: iterations in its run file, and what that says of another training."""
    found = {}
    for path in directory.glob("perf_records_*.jsonl"):
        with path.open("rb") as file:
            header, *records = read_records(file, recall)
        assert isinstance(header, RunHeader)
        steps = [each.iteration for each in records if isinstance(each, StepRecord)]
        texts = [each.text for each in records if isinstance(each, EventRecord) and TOLD in each.text]
        found[header.pid] = (steps, texts)
    return found


def has(directory: Path, training: Trainer, steps: int) -> None:
    wait_for("its steps", lambda: len(sessions(directory).get(training.process.pid, ((), ()))[0]) == steps)


def test_the_second_of_two_trainings_is_told_once_and_both_keep_their_records(tmp_path: Path) -> None:
    with trainer(tmp_path) as first:
        first.tell("put", 10)
        has(tmp_path, first, 10)
        with trainer(tmp_path) as second:
            second.tell("put", 25)
            has(tmp_path, second, 25)
            code, _, said = second.end("return")
        first.tell("put", 5)
        assert (code, first.end("return")[2]) == (0, "")
    (host_line,) = [line for line in said.splitlines() if TOLD in line]
    assert ", too: session " in host_line and f", process {first.process.pid} on " in host_line
    found = sessions(tmp_path)
    assert found[first.process.pid] == (list(range(1, 16)), [])
    steps, (text,) = found[second.process.pid]
    assert (steps, f"flagscale_perf: {text}") == (list(range(1, 26)), host_line)


def test_who_goes_on_after_a_kill_or_beside_its_own_earlier_session_is_told_nothing(tmp_path: Path) -> None:
    with trainer(tmp_path) as first:
        first.tell("put", 10)
        has(tmp_path, first, 10)
        first.kill()  # its writer may still be at work
        with trainer(tmp_path) as second:
            second.tell("put", 25)
            has(tmp_path, second, 25)
            assert second.end("return")[2] == ""
    assert [texts for _, texts in sessions(tmp_path).values()] == [[], []]
