"""From the ring to the files, on one thread, with every trouble on the way."""

from __future__ import annotations

import errno
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from flagscale_perf.spine import files
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.records import EventRecord, RunEnd, RunHeader
from flagscale_perf.spine.ring import Ring
from flagscale_perf.store.decoder import decode
from flagscale_perf.training.recording.pipeline import Sources, TrainingPipeline
from flagscale_perf.training.records import IntervalRecord, StepRecord
from flagscale_perf.writer import drain as drain_module
from flagscale_perf.writer.drain import Drain
from flagscale_perf.writer.messages import Line, Message, Trouble
from flagscale_perf.writer.task import WriterTask
from tests.fakes import SECOND, make_event, make_facts, make_header, make_step


@pytest.fixture
def ring() -> Iterator[Ring]:
    made = Ring.create(slots=64)
    yield made
    made.release()


@pytest.fixture
def said() -> list[str]:
    return []


def make_drain(
    ring: Ring, directory: Path, said: list[str], notes=(), anchor: Anchor | None = None, **config
) -> Drain:
    task = WriterTask(
        make_header(**config).config,
        asdict(make_facts()),
        anchor or Anchor.now(),
        1234,
        directory,
        notes=list(notes),
    )
    return drain_of(ring, task, said)


def drain_of(ring: Ring, task: WriterTask, said: list[str], sources: Sources | None = None) -> Drain:
    def send(message: Message) -> None:
        assert isinstance(message, Line | Trouble)
        said.append(message.text)

    return Drain(ring, task, TrainingPipeline(task, sources or Sources()), send)


def never_waits(seconds: float) -> None:
    """The files are in memory of the machine: no need to sleep."""


def finish(ring: Ring, drain: Drain, reason: str = "completed") -> None:
    ring.close(reason, drain._task.anchor.mono_ns)
    drain.run(never_waits, lambda: False)


def die(drain: Drain) -> None:
    """What the end of its process does to it."""
    if drain._session is not None:
        drain._session.close()


def records_in(directory: Path) -> list:
    (path,) = directory.glob("perf_records_*.jsonl")
    return [decode(line) for line in path.read_bytes().splitlines()]


def steps_in(directory: Path) -> list[int]:
    return [record.iteration for record in records_in(directory) if isinstance(record, StepRecord)]


def put(ring: Ring, *iterations: int) -> None:
    for iteration in iterations:
        ring.put(make_step(iteration))


def test_everything_ends_up_in_every_file(ring: Ring, tmp_path: Path, said: list[str]) -> None:
    drain = make_drain(ring, tmp_path / "logs", said, perf_console_output=True)
    put(ring, *range(1, 26))
    ring.put(make_event("resume", text="resumed"))
    finish(ring, drain, "exit 3")
    records = records_in(tmp_path / "logs")
    assert isinstance(records[0], RunHeader)
    assert [r for r in records if isinstance(r, StepRecord | EventRecord)] == [
        *map(make_step, range(1, 26)),
        make_event("resume", text="resumed"),
    ]
    assert [r.iteration for r in records if isinstance(r, IntervalRecord)] == [10, 20, 25]
    assert records[-1] == RunEnd("exit 3", drain._task.anchor.wall_ns, 25, 0)
    log = next((tmp_path / "logs").glob("perf_metrics_*.log")).read_text()
    assert log.splitlines() == said == (tmp_path / "logs" / "perf_realtime.log").read_text().splitlines()
    assert len(said) == 6 + 3 + 2
    assert ring.summary is not None
    summary = json.loads(Path(ring.summary).read_text())
    assert (
        summary["session_info"]["end_reason"],
        summary["totals"]["samples"],
        len(summary["iteration_logs"]),
    ) == ("exit 3", 200, 3)
    assert len(list((tmp_path / "logs" / "tensorboard").iterdir())) == 1


def test_a_producer_that_vanishes_was_killed(ring: Ring, tmp_path: Path, said: list[str]) -> None:
    drain = make_drain(ring, tmp_path, said)
    put(ring, 1, 2, 3)
    drain.run(never_waits, lambda: True)
    assert steps_in(tmp_path) == [1, 2, 3]
    end = records_in(tmp_path)[-1]
    assert (end.reason, end.last_iteration) == ("killed", 3)


def test_what_comes_between_the_last_look_and_the_end_is_not_lost(
    ring: Ring, tmp_path: Path, said: list[str]
) -> None:
    drain = make_drain(ring, tmp_path, said)
    asked = []

    def dies_while_being_asked() -> bool:
        asked.append(None)
        put(ring, len(asked))
        return len(asked) == 3

    drain.run(never_waits, dies_while_being_asked)
    assert steps_in(tmp_path) == [1, 2, 3]


def test_two_sessions_of_one_second_have_names_of_their_own(
    ring: Ring, tmp_path: Path, said: list[str]
) -> None:
    other = Ring.create(slots=8)
    first = make_drain(ring, tmp_path, said)
    second = drain_of(other, first._task, said)
    put(ring, 1)
    put(other, 2)
    finish(ring, first)
    finish(other, second)
    assert other.session == f"{ring.session}_2"
    assert len(list(tmp_path.glob("perf_summary_*.json"))) == 2
    assert said == []
    other.release()


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch):
    """A switch: while on, every write to a file fails as on a full disk, after a first short one."""
    state = {"on": False, "room": 0}
    real_write = files.os.write

    def write(fd: int, data: memoryview) -> int:
        if not state["on"]:
            return real_write(fd, data)
        if state["room"] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        room, state["room"] = state["room"], 0
        return real_write(fd, data[:room])

    monkeypatch.setattr(files.os, "write", write)
    return state


def test_a_full_disk_for_a_while_loses_nothing(
    ring: Ring, tmp_path: Path, said: list[str], full_disk
) -> None:
    drain = make_drain(ring, tmp_path, said)
    put(ring, *range(1, 13))
    drain.cycle()
    full_disk.update(on=True, room=700)
    for iterations in (range(13, 31), range(31, 51), ()):
        put(ring, *iterations)
        assert not drain.cycle()
    full_disk["on"] = False
    finish(ring, drain)
    assert steps_in(tmp_path) == list(range(1, 51))
    log = next(tmp_path.glob("perf_metrics_*.log")).read_text()
    assert [line.split()[2] for line in log.splitlines() if line.startswith("2")] == [
        "10",
        "20",
        "30",
        "40",
        "50",
    ]
    assert [line.partition("; ")[0] for line in said if "run file" in line] == [
        "flagscale_perf: run file: OSError: [Errno 28] No space left on device"
    ]
    assert json.loads(Path(ring.summary or "").read_text())["totals"]["samples"] == 400


def test_a_disk_full_for_too_long_drops_counts_and_says_so(
    ring: Ring, tmp_path: Path, said: list[str], full_disk
) -> None:
    drain = make_drain(ring, tmp_path, said)
    drain.cycle()
    full_disk["on"] = True
    put(ring, *range(1, 101))
    drain.cycle()
    put(ring, *range(101, 111))
    drain.cycle()
    full_disk["on"] = False
    put(ring, 111)
    drain.cycle()
    finish(ring, drain)
    assert steps_in(tmp_path) == list(range(1, 65))
    assert records_in(tmp_path)[-1].dropped == 47
    assert [line for line in said if "lost" in line] == [
        "flagscale_perf: 36 records lost so far: records came faster than the disk took them"
    ]
    assert json.loads(Path(ring.summary or "").read_text())["dropped_records"] == 47
    drops = [
        record.text
        for record in records_in(tmp_path)
        if isinstance(record, EventRecord) and record.name == "drop"
    ]
    assert drops == ["36 records lost so far: records came faster than the disk took them"]


def test_a_disk_that_is_full_to_the_end_is_given_up_after_a_while(
    ring: Ring, tmp_path: Path, said: list[str], full_disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0]
    monkeypatch.setattr(drain_module, "monotonic_ns", lambda: now[0])
    monkeypatch.setattr(drain_module.tempfile, "tempdir", str(tmp_path / "gone"))
    drain = make_drain(ring, tmp_path, said)
    put(ring, 1)
    drain.cycle()
    full_disk["on"] = True
    put(ring, 2)
    ring.close("completed", 0)

    def wait(seconds: float) -> None:
        now[0] += int(seconds * 1e9)

    drain.run(wait, lambda: False)
    assert now[0] == pytest.approx(drain_module.PATIENCE_S * 1e9, rel=0.1)
    (before,) = tmp_path.glob("perf_summary_*.json")  # out of date, but true
    assert ring.summary == str(before)
    assert "what waited could not be saved elsewhere" in said[-1]


def test_a_directory_that_cannot_be_made_is_said_once_and_tried_again(
    ring: Ring, tmp_path: Path, said: list[str]
) -> None:
    (tmp_path / "logs").write_text("in the way")
    drain = make_drain(ring, tmp_path / "logs", said)
    put(ring, 1)
    assert not drain.cycle()
    assert not drain.cycle()
    assert said == [
        f"flagscale_perf: run file: NotADirectoryError: {tmp_path}/logs is not a directory; "
        "records wait in memory; make room or give another directory"
    ]
    (tmp_path / "logs").unlink()
    put(ring, 2)
    finish(ring, drain)
    assert steps_in(tmp_path / "logs") == [1, 2]


def test_with_debug_its_traceback_comes_behind_a_failure(ring: Ring, tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "logs").write_text("in the way")
    drain = make_drain(ring, tmp_path / "logs", said, perf_debug=True)
    assert not drain.cycle()
    assert [said[0].split(":")[1], said[1], said[-1]] == [
        " run file", "Traceback (most recent call last):",
        f"NotADirectoryError: {tmp_path}/logs is not a directory",
    ]  # fmt: skip


def test_where_nothing_can_be_written_it_ends_at_once(ring: Ring, tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "logs").write_text("in the way")
    drain = make_drain(ring, tmp_path / "logs", said)
    ring.close("completed", 0)
    drain.run(lambda seconds: pytest.fail("waited"), lambda: False)
    assert (ring.summary, (tmp_path / "logs").read_text()) == ("", "in the way")


def test_a_removed_directory_costs_only_what_was_in_it(ring: Ring, tmp_path: Path, said: list[str]) -> None:
    drain = make_drain(ring, tmp_path / "logs", said)
    put(ring, *range(1, 11))
    drain.cycle()
    shutil.rmtree(tmp_path / "logs")
    put(ring, *range(11, 21))
    finish(ring, drain)
    records = records_in(tmp_path / "logs")
    assert isinstance(records[0], RunHeader)
    assert steps_in(tmp_path / "logs") == list(range(11, 21))
    summary = json.loads(Path(ring.summary or "").read_text())
    assert (summary["totals"]["samples"], len(summary["iteration_logs"])) == (160, 2)
    assert said == []


@pytest.mark.parametrize("lost", [0, 1, 40, 5000])
def test_another_drain_goes_on_where_a_killed_one_stopped(
    ring: Ring, tmp_path: Path, said: list[str], lost: int
) -> None:
    """The first one dies after bringing steps 11 to 15 into the run file and before giving their slots back;
    and of what it wrote, the last `lost` bytes are missing, too."""
    first = make_drain(ring, tmp_path, said)
    put(ring, *range(1, 11))
    first.cycle()
    put(ring, *range(11, 21))
    path = next(tmp_path.glob("perf_records_*.jsonl"))
    safe = path.stat().st_size
    assert first._session is not None
    assert first._fill(first._session)
    first._session.run_file.flush()
    with path.open("rb+") as file:
        file.truncate(max(safe, path.stat().st_size - lost))
    die(first)
    second = make_drain(ring, tmp_path, said, notes=["the writer process ended with code -9"])
    put(ring, 21, 22)
    finish(ring, second)
    assert steps_in(tmp_path) == list(range(1, 23))
    intervals = [record for record in records_in(tmp_path) if isinstance(record, IntervalRecord)]
    assert [(r.first_iteration, r.iteration, r.steps) for r in intervals] == [
        (1, 10, 10),
        (11, 20, 10),
        (21, 22, 2),
    ]
    summary = json.loads(Path(ring.summary or "").read_text())
    assert (summary["totals"]["train_steps"], len(summary["iteration_logs"])) == (22, 3)
    assert [failure["text"] for failure in summary["failures"]] == ["the writer process ended with code -9"]
    assert len(list(tmp_path.glob("perf_records_*"))) == 1


def test_a_session_whose_files_are_gone_is_begun_again(ring: Ring, tmp_path: Path, said: list[str]) -> None:
    first = make_drain(ring, tmp_path / "logs", said)
    put(ring, 1)
    first.cycle()
    die(first)
    shutil.rmtree(tmp_path / "logs")
    second = make_drain(ring, tmp_path / "logs", said)
    put(ring, 2)
    finish(ring, second)
    assert isinstance(records_in(tmp_path / "logs")[0], RunHeader)
    assert steps_in(tmp_path / "logs") == [2]


def test_a_clock_that_is_set_is_noted_and_the_labels_go_on(
    ring: Ring, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drain = make_drain(ring, tmp_path, said)
    drain.cycle()
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3600 * 10**9)
    drain.cycle()
    finish(ring, drain)
    clocks = [record for record in records_in(tmp_path) if isinstance(record, EventRecord)]
    assert [(r.name, r.text) for r in clocks] == [
        ("clock", "the wall clock was set by -3600.0 s; times here go on as before")
    ]


def test_only_the_newest_sessions_are_kept(tmp_path: Path, said: list[str]) -> None:
    now, sessions = Anchor.now(), []
    for number in range(4):
        ring = Ring.create(slots=8)
        anchor = Anchor(now.wall_ns + number * SECOND, now.mono_ns + number * SECOND)
        finish(ring, make_drain(ring, tmp_path, said, anchor=anchor, perf_max_log_files=2))
        sessions.append(ring.session)
        ring.release()
    kept = [path.stem.removeprefix("perf_records_") for path in sorted(tmp_path.glob("perf_records_*"))]
    assert kept == sessions[2:]
    assert len(list(tmp_path.glob("perf_summary_*"))) == 2
    text = f"--perf-max-log-files 2: old sessions removed from {tmp_path}: "
    assert said == [f"flagscale_perf: {text}{session}" for session in sessions[:2]]
    assert f'"{text}{sessions[1]}"' in (tmp_path / f"perf_records_{sessions[3]}.jsonl").read_text()


class TestSuspect:
    """A step of 100 ms with 200 TFLOP on 8 devices of 100 TFLOP/s each: 250 %."""

    SAYS = (
        "iterations 1 to 10: MFU 250.0 %, HFU - of a peak of 100 TFLOP/s (a round number). No device "
        "passes its peak: check "
    )

    def put(self, ring: Ring, *iterations: int) -> None:
        for iteration in iterations:
            ring.put(make_step(iteration, model_flops=2 * 10**14, hardware_flops=None))

    def suspects(self, directory: Path) -> list[EventRecord]:
        return [
            record
            for record in records_in(directory)
            if isinstance(record, EventRecord) and record.name == "suspect"
        ]

    def test_the_first_interval_above_the_peak_is_an_event_and_every_one_is_marked(
        self, ring: Ring, tmp_path: Path, said: list[str]
    ) -> None:
        drain = make_drain(ring, tmp_path, said)
        self.put(ring, *range(1, 26))
        finish(ring, drain)
        (event,) = self.suspects(tmp_path)
        assert event.text.startswith(self.SAYS)
        assert said == [f"flagscale_perf: {event.text}"]
        lines = next(tmp_path.glob("perf_metrics_*.log")).read_text().splitlines()
        assert sum(" 250.0! " in line for line in lines) == 3
        assert [" suspect: iterations 1 to 10: " in line for line in lines].index(True) == 7
        statistics = json.loads(Path(ring.summary or "").read_text())["final_statistics"]
        assert (statistics["avg_mfu"], statistics["avg_hfu"], statistics["suspect_intervals"]) == (
            None,
            None,
            3,
        )

    def test_a_last_interval_that_is_no_whole_one_is_told_too(
        self, ring: Ring, tmp_path: Path, said: list[str]
    ) -> None:
        drain = make_drain(ring, tmp_path, said)
        put(ring, *range(1, 11))
        self.put(ring, 11, 12)
        finish(ring, drain)
        assert [event.text[:24] for event in self.suspects(tmp_path)] == ["iterations 11 to 12: MFU"]

    def test_who_goes_on_for_a_writer_that_died_does_not_say_it_again(
        self, ring: Ring, tmp_path: Path, said: list[str]
    ) -> None:
        drain = make_drain(ring, tmp_path, said)
        self.put(ring, *range(1, 11))
        drain.cycle()
        die(drain)
        self.put(ring, *range(11, 21))
        finish(ring, make_drain(ring, tmp_path, said))
        assert len(self.suspects(tmp_path)) == len(said) == 1
