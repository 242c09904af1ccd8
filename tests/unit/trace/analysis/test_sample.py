"""What became of one sample, as it was planted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.analysis.blocks import Table
from flagscale_perf.analysis.job import open_session
from flagscale_perf.cli import main
from flagscale_perf.report import text
from flagscale_perf.report.format import shown
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.trace.analysis.sample import MOST_LIVES, report_of_sample
from flagscale_perf.trace.analysis.source import read_traces
from flagscale_perf.trace.batches import key_number
from flagscale_perf.trace.records import KeysRecord
from tests.trace_runs import MS, Job, lines_of_call


def _story(directory: Path) -> Path:
    job = Job()
    driver, rollout, train = (job.process(name, number) for number, name in enumerate(("D", "R", "T"), 1))
    job.put(driver, 0, range(8), names=["prompt"])
    job.put(rollout, 20 * MS, range(4, 8), names=["response"])
    job.put(driver, 40 * MS, range(8), names=["note"])
    job.get(train, 60 * MS, range(8), names=["prompt", "response"])
    job.clear(driver, 80 * MS, (0, 8))
    job.put(driver, 100 * MS, range(8), names=["prompt"])
    return job.write(directory)


def lives_of(directory: Path, asked: str) -> list[dict[str, Any]]:
    report = report_of_sample(read_traces(open_session(_story(directory))), asked)
    return report.content.as_dict()["lives"]


def test_a_sample_has_who_created_it_and_who_wrote_each_field(tmp_path: Path) -> None:
    first, second = lives_of(tmp_path, "train:5")
    events = [(one["what"], one["process"], one["fields"]) for one in first["events"]]
    assert events == [
        ("created", "D 1", "prompt"),
        ("put", "R 2", "response"),
        ("put", "D 1", "note"),
        ("got", "T 3", "response: R 2; prompt: D 1"),
        ("cleared", "", ""),
    ]
    assert [(one["what"], one["fields"]) for one in second["events"]] == [("created", "prompt")]
    (missing,) = [one for one in lives_of(tmp_path, "train:1")[0]["events"] if one["what"] == "got"]
    assert missing["fields"] == "prompt: D 1; response: (not recorded)"


def test_times_of_a_sample_are_durations(tmp_path: Path) -> None:
    """A put is there 2.7 ms after it began and ends after 4; a get takes 6."""
    first, second = lives_of(tmp_path, "train:5")
    named = ("after_s", "waited_s", "took_s")
    times = [tuple(one[name] and round(one[name] * 1000, 3) for name in named) for one in first["events"]]
    assert times == [(0, None, 4), (20, None, 4), (40, None, 4), (57.3, 37.3, 6), (77.3, None, None)]
    assert [round(life["at_s"] * 1000, 3) for life in (first, second)] == [2.7, 102.7]


def test_each_sample_of_an_index_has_a_heading_with_its_step(tmp_path: Path) -> None:
    job = Job()
    driver, train = job.process("D", 1), job.process("T", 2)
    for step in range(MOST_LIVES + 2):
        job.put(driver, step * 100 * MS, range(4))
        job.get(train, step * 100 * MS + 50 * MS, range(4), step=step)
        job.clear(driver, step * 100 * MS + 80 * MS, (0, 4))
    report = report_of_sample(read_traces(open_session(job.write(tmp_path))), "train:3")
    assert [section.title for section in report.sections[:2]] == [
        "Step 2: first put 0.203 s after the first operation",
        "Step 3: first put 0.303 s after the first operation",
    ]
    assert len(report.sections) == MOST_LIVES
    assert "its last 20 samples; 2 before them" in text.render(report)


def test_the_latest_samples_are_listed_and_the_first_of_them_is_told(tmp_path: Path) -> None:
    """In step 3 the second half is put 40 ms late; the trainer waits for it."""
    job = Job()
    one, other, train = (job.process(name, number) for number, name in enumerate("ABT", 1))
    for step in range(12):
        at_ns, late_ns = step * 200 * MS, 40 * MS if step == 3 else 0
        job.put(one, at_ns, range(8), names=["prompt"])
        job.put(other, at_ns + 20 * MS, range(4), names=["response"])
        job.put(other, at_ns + 20 * MS + late_ns, range(4, 8), names=["response"])
        job.get(train, at_ns + 30 * MS, range(4), names=["prompt", "response"])
        job.get(train, at_ns + 30 * MS + late_ns, range(4, 8), names=["prompt", "response"])
        job.clear(one, at_ns + 100 * MS, (0, 8))
    traces = read_traces(open_session(job.write(tmp_path)))
    report = report_of_sample(traces, "latest")
    (table,) = report.sections[0].blocks
    assert isinstance(table, Table) and len(table.rows) == 10
    assert [shown(cell) for cell in table.rows[0]] == [
        "train:4 to 7 (4)",
        "8",  # the trainer's eighth get
        "67.3 ms",
        "60.0 ms",
        "7.30 ms",
        "B 2",
    ]
    assert [shown(row[2]) for row in table.rows[1:]] == ["27.3 ms"] * 9
    assert (report.title, len(report.sections)) == ("Sample 4 of partition train", 2)
    assert report.sections[1].title.endswith("first put 0.603 s after the first operation")


def test_without_samples_that_were_got_there_are_no_latest(tmp_path: Path) -> None:
    job = Job()
    job.put(job.process("D", 1), 0, range(4))
    with pytest.raises(PerfError, match="--sample latest: no sample was put and got"):
        report_of_sample(read_traces(open_session(job.write(tmp_path))), "latest")


def test_a_sample_is_found_by_the_key_that_it_had_last(tmp_path: Path) -> None:
    job = Job()
    driver = job.process("D", 1)
    partition = job.name(driver, "a:b")
    for at, index in ((0, 3), (10 * MS, 4)):
        job.records.append(
            KeysRecord(driver, partition, at, (1, key_number("other"), index, key_number("k:1")))
        )
        job.put(driver, at, [1, index], partition="a:b")
    traces = read_traces(open_session(job.write(tmp_path)))
    assert report_of_sample(traces, "a:b:k:1").content.as_dict()["index"] == 4
    assert report_of_sample(traces, "a:b:3").content.as_dict()["index"] == 3
    with pytest.raises(PerfError, match=r"TQ_TRACE_KEYS=1 and a sample has this key"):
        report_of_sample(traces, "a:b:nobody")


def test_the_command_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _story(tmp_path)
    assert main(["report", str(path), "--sample", "train:5", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["index"] == 5
    assert main(["report", str(path), "--sample", "latest"]) == 0
    assert "The latest samples" in capsys.readouterr().out
    assert "response: R 2" in text.render(report_of_sample(read_traces(open_session(path)), "train:5"))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("train:99", "no put or get of sample 'train:99' is recorded.*'train'"),
        ("other:1", "no put or get of sample 'other:1'"),
        ("train", "PARTITION:INDEX, such as train_0:17, not 'train'"),
        ("train:x", "not 'train:x'"),
    ],
)
def test_a_sample_that_is_not_there_is_an_error(tmp_path: Path, asked: str, said: str) -> None:
    with pytest.raises(PerfError, match=said):
        report_of_sample(read_traces(open_session(_story(tmp_path))), asked)


def test_a_log_has_no_samples(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("\n".join(lines_of_call()))
    with pytest.raises(PerfError, match="a log has no indexes"):
        report_of_sample(read_traces(open_session(log)), "train:5")
