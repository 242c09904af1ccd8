"""Trouble while a training runs: the writer dies or hangs, the disk is full, the directory is odd."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import psutil
import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.sinks import realtime
from flagscale_perf.sinks.realtime import RealtimeSink
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.spine.ring import SLOTS
from flagscale_perf.training.analysis.fold import read_summary
from flagscale_perf.training.records import StepRecord
from flagscale_perf.writer.losses import OVERFLOW
from tests.fakes import make_context, make_header, make_interval
from tests.processes.trainer import (
    Trainer,
    ended_summary,
    records_in,
    steps_in,
    text_of,
    trainer,
    wait_for,
    written_last,
)


def test_the_writer_knows_no_torch_and_no_terminal(tmp_path: Path) -> None:
    with trainer(tmp_path) as training:
        writer = training.writer()
        training.tell("put", 10)
        wait_for("an interval", lambda: '"interval"' in text_of(tmp_path, "perf_records_*"))
        assert not [mapped.path for mapped in writer.memory_maps() if "torch" in mapped.path]
        assert os.getsid(writer.pid) == writer.pid != os.getsid(training.process.pid)
        training.end("return")


def kill_writer(training: Trainer) -> int:
    """Kills the writer and waits until another one, or the trainer itself, takes over; returns the process
    id.
    """
    writer = training.writer()
    writer.kill()
    wait_for(
        "the dead writer's successor", lambda: writer not in psutil.Process(training.process.pid).children()
    )
    return writer.pid


@pytest.mark.parametrize("deaths", [1, 3])
def test_a_killed_writer_is_replaced_and_nothing_is_lost(tmp_path: Path, deaths: int) -> None:
    """After the third death the trainer's own thread does the work."""
    with trainer(tmp_path) as training:
        killed = []
        for _ in range(deaths):
            training.tell("put", 7)
            killed.append(kill_writer(training))
        training.tell("put", 7)
        code, _, stderr = training.end("return")
    steps = 7 * (deaths + 1)
    summary = ended_summary(tmp_path)
    assert (code, summary["totals"]["train_steps"], summary["session_info"]["end_reason"]) == (
        0,
        steps,
        "completed",
    )
    assert steps_in(tmp_path) == list(range(1, steps + 1))
    assert [failure["text"] for failure in summary["failures"]] == [
        f"writer process {pid} ended with code -9" for pid in killed
    ]
    assert stderr.count(" ended with code -9") == deaths


def test_a_writer_killed_right_before_the_end_is_made_up_for(tmp_path: Path) -> None:
    with trainer(tmp_path) as training:
        writer = training.writer()
        writer.suspend()
        training.tell("put", 25)
        writer.kill()
        code, stdout, _ = training.end("return")
    assert (code, stdout) == (0, f"{next(tmp_path.glob('perf_summary_*'))}\n")
    assert steps_in(tmp_path) == list(range(1, 26))
    assert ended_summary(tmp_path)["totals"]["train_steps"] == 25


def test_a_writer_that_hangs_holds_up_the_end_only_so_long_and_finishes_alone(tmp_path: Path) -> None:
    with trainer(tmp_path) as training:
        writer = training.writer()
        writer.suspend()
        training.tell("put", 12)
        assert training.tell("close", "0.2", "completed") == "None"
        assert training.answer() == "done close"
        assert training.leave() == 0
        writer.resume()
        summary = ended_summary(tmp_path)
        training.process.communicate()
    assert (summary["session_info"]["end_reason"], summary["totals"]["train_steps"]) == ("completed", 12)


def test_what_finds_no_room_is_counted_and_told_as_soon_as_writing_works_again(tmp_path: Path) -> None:
    with trainer(tmp_path) as training:
        writer = training.writer()
        writer.suspend()
        training.tell("put", SLOTS + 1000)
        writer.resume()
        wait_for("the queue's last record", lambda: f'"iteration":{SLOTS},' in written_last(tmp_path))
        training.tell("put", 10)
        code, _, stderr = training.end("return")
    assert steps_in(tmp_path) == [*range(1, SLOTS + 1), *range(SLOTS + 1001, SLOTS + 1011)]
    summary = ended_summary(tmp_path)
    assert (code, summary["dropped_records"], summary["totals"]["train_steps"]) == (0, 1000, SLOTS + 10)
    told = f"1000 records lost so far: {OVERFLOW}"
    (run_file,) = tmp_path.glob("perf_records_*")
    last = f"1000 of {SLOTS + 1010} records are missing from {run_file}: {OVERFLOW}"
    assert stderr.splitlines() == [f"flagscale_perf: {told}", f"flagscale_perf: {last}"]
    records = records_in(tmp_path)
    place = next(
        place
        for place, record in enumerate(records)
        if isinstance(record, EventRecord) and record.text == told
    )
    assert any(isinstance(record, StepRecord) and record.iteration > SLOTS for record in records[place:])
    assert read_summary(open_session(run_file)).as_dict() == summary


def test_a_fifo_with_a_reader_in_the_place_of_the_live_log_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "perf_realtime.log"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with trainer(tmp_path) as training:
        training.tell("put", 25)
        code, _, stderr = training.end("return")
    assert (code, steps_in(tmp_path), os.read(reader, 100)) == (0, list(range(1, 26)), b"")
    os.close(reader)
    said, last = [line.partition(": ")[2] for line in stderr.splitlines()]
    assert said.startswith("live log: NotRegularError: ")
    assert last.startswith("not everything was written: live log: NotRegularError: ")
    assert last.endswith(f"; all 25 records are in {next(tmp_path.glob('perf_records_*'))}")
    assert ended_summary(tmp_path)["failure_count"] == 1


def test_a_file_in_the_place_of_the_directory_costs_no_record(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("precious")
    with trainer(tmp_path / "logs") as training:
        training.tell("put", 25)
        code, stdout, stderr = training.end("return")
    assert (code, stdout) == (0, "None\n")
    why = f"run file: NotADirectoryError: {tmp_path}/logs is not a directory"
    waits, saved, last = stderr.splitlines()
    assert waits == f"flagscale_perf: {why}; records wait in memory; make room or give another directory"
    assert saved.startswith(f"flagscale_perf: {tmp_path}/logs takes no more: what waited is in ")
    assert steps_in(Path(saved.rpartition(" ")[2])) == list(range(1, 26))
    assert last == (
        f"flagscale_perf: nothing was recorded in {tmp_path}/logs: {why}; "
        "give a --perf-log-dir that can be written"
    )
    assert (tmp_path / "logs").read_text() == "precious"


def interval_steps(directory: Path) -> list[str]:
    log = next(directory.glob("perf_metrics_*.log")).read_text()
    return [line.split()[2] for line in log.splitlines() if line.startswith("2")]


def test_no_room_for_a_while_loses_nothing(tmp_path: Path) -> None:
    """No file of the writer may pass 4 kB for a while: a short write, then EFBIG, as on a full disk."""
    with trainer(tmp_path) as training:
        writer = training.writer()
        limits = resource.prlimit(writer.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(writer.pid, resource.RLIMIT_FSIZE, (4096, limits[1]))
        training.tell("put", 500)
        run_file = next(tmp_path.glob("perf_records_*"))
        wait_for("a full file", lambda: run_file.stat().st_size == 4096)
        training.tell("put", 500)
        resource.prlimit(writer.pid, resource.RLIMIT_FSIZE, limits)
        code, _, stderr = training.end("return")
    assert (code, steps_in(tmp_path)) == (0, list(range(1, 1001)))
    assert interval_steps(tmp_path) == [str(n) for n in range(10, 1001, 10)]
    assert stderr.count("flagscale_perf: run file: ") == 1
    assert ended_summary(tmp_path)["totals"]["train_steps"] == 1000


def test_the_console_of_a_real_training_gets_the_lines(tmp_path: Path) -> None:
    with trainer(tmp_path, perf_console_output=True) as training:
        training.send("put", 25)
        _, stdout, _ = training.end("return")
    said = [line.removeprefix("say ") for line in stdout.splitlines() if line.startswith("say ")]
    assert said == next(tmp_path.glob("perf_metrics_*.log")).read_text().splitlines()


def test_a_console_nobody_reads_blocks_nothing_but_itself(tmp_path: Path) -> None:
    with trainer(tmp_path, perf_console_output=True, perf_log_interval=1) as training:
        training.writer()
        training.tell("put", 10)
        training.send("put", 5000)  # 650 kB of lines; nobody reads the trainer's stdout
        wait_for("all steps in the run file", lambda: '"iteration":5010,' in written_last(tmp_path))
        training.kill()
    assert ended_summary(tmp_path)["totals"]["train_steps"] == 5010


def test_a_follower_gets_every_line_once_across_truncations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(realtime, "FOLLOWER_TIME_NS", 0)  # each line below is waited for instead
    sink = RealtimeSink(make_context(make_header(), tmp_path, print), max_bytes=1500)
    sink.flush()
    path = tmp_path / "perf_realtime.log"
    sizes, got = [], []
    with subprocess.Popen(
        ["tail", "-f", "-n", "+1", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as tail:
        assert tail.stdout is not None
        for iteration in range(1, 41):
            sink.write(make_interval(iteration))
            sink.flush()
            sizes.append(path.stat().st_size)
            while not got or got[-1] != iteration:
                line = tail.stdout.readline()
                assert line, "tail has ended"
                if line.startswith("2024"):
                    got.append(int(line.split()[2]))
        tail.kill()
    sink.close()
    assert got == list(range(1, 41))
    assert len([1 for before, after in zip(sizes, sizes[1:], strict=False) if after < before]) >= 3
    assert max(sizes) <= 1500
