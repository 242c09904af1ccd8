"""What became of one sample, as it was planted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.cli import main
from flagscale_perf.report import text
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.trace.analysis.sample import report_of_sample
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


def test_a_sample_has_who_created_it_and_who_wrote_each_field(tmp_path: Path) -> None:
    found = report_of_sample(read_traces(open_session(_story(tmp_path))), "train:5").content.as_dict()
    events = [(one["what"], one["process"], one["fields"], one["written"]) for one in found["events"]]
    assert events == [
        ("created", "D 1", "prompt", ""),
        ("put", "R 2", "response", ""),
        ("put", "D 1", "note", ""),
        ("got", "T 3", "prompt, response", "response: R 2 at 0.022700 s; prompt: D 1 at 0.002700 s"),
        ("cleared", "", "", ""),
        ("created", "D 1", "prompt", ""),
    ]
    missing = report_of_sample(read_traces(open_session(_story(tmp_path))), "train:1").content.as_dict()[
        "events"
    ][2]
    assert missing["written"] == "prompt: D 1 at 0.002700 s; response: (not recorded)"


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
