"""A program that reads the brief alone can answer what is asked of a job, and reads nothing untrue."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from flagscale_perf.analysis.blocks import Findings, Note, Report
from flagscale_perf.analysis.job import begun
from flagscale_perf.analysis.job_report import report_of
from flagscale_perf.analysis.rules import Link
from flagscale_perf.report import text
from flagscale_perf.report.brief import render
from flagscale_perf.spine.language import CHINESE, using
from tests import synthetic
from tests.conftest import REPO
from tests.every_block import FINDING, every_block
from tests.every_instrument import WRITERS, beside
from tests.fakes import MS


def tokens(text: str) -> float:
    """As the brief promises to count them: four ASCII characters each, any other character by itself."""
    return sum(0.25 if each.isascii() else 1 for each in text)


def recorded(path: str, name: str) -> Callable[[Path], object]:
    return lambda directory: shutil.copy(REPO / "tests" / path, directory / name)


def planted(steps: int, extra: Callable[[int], dict[str, int]]) -> Callable[[Path], object]:
    return lambda directory: synthetic.write(synthetic.Plan(steps=steps, extra=extra), directory)


EARLIER = "perf_records_20261124_002736.jsonl"
JOBS: dict[str, Callable[[Path], object]] = {
    **{name: WRITERS[name] for name in ("training", "rpc", "trace", "profile")},
    "earlier": recorded(f"earlier_files/{EARLIER}", EARLIER),
    "small": recorded("golden/perf_records.jsonl", "perf_records_20240129_103000.jsonl"),
    "calls' log": recorded("golden/zmq_performance.log", "zmq_performance.log"),
    "queue's lines": recorded("golden/trace_lines.log", "training.log"),
    "data": planted(100, lambda step: {"data_loading_ns": 100 * MS}),
    "slower": planted(200, lambda step: {"forward_ns": 150 * MS * (step > 100)}),
}
QUESTIONS = [
    ("training", "What was the MFU?", "figure.MFU", "39.9 %"),
    ("training", "Is anything wrong?", "findings", "0"),
    ("training", "How did it end?", "run.state", "completed"),
    ("training", "Why is nothing known of other ranks?", "unknown.1", "the file has nothing of them"),
    ("training", "What takes longest in a step?", "time.Phases.backward", "58.9 %"),
    ("rpc", "What costs most?", "finding.1.id", "half_precision"),
    ("rpc", "What could be gained?", "finding.1.costs", "at most +30.3 % calls in the same time"),
    ("rpc", "What share of a call is the server?", "time.Stages.server", "53.5 %"),
    ("trace", "Which function is slow?", "finding.1", "train is the slow stage"),
    ("trace", "By which figure, against which limit?", "finding.1.evidence.1", "79.7 %, limit 40.0 %"),
    ("profile", "How much does profiling itself cost?", "figure.profiling", "x1.072"),
    ("earlier", "Why is there no MFU?", "unknown.4", "the peak of a CPU is in no table"),
    ("earlier", "Which figures are not known?", "unknown.figures", "MFU, HFU, peak_memory, energy"),
    ("small", "Which flag first?", "finding.1.change.1", "--eval-interval: raise it"),
    ("small", "Is there memory left?", "finding.2.evidence.2", "2.1 %, limit 60.0 %"),
    ("calls' log", "How many calls?", "figure.calls", "27"),
    ("queue's lines", "What failed?", "finding.1.evidence.1", "rollout: ValueError 2; put: ValueError 1"),
    ("data", "What holds it up, and what to set?", "finding.1.change.1", "--num-workers"),
    ("data", "What would it gain?", "finding.1.costs", "+10.5 % tokens/s"),
    ("slower", "When did it get slower?", "finding.1", "from iteration 101 on: from 300.0 to 450.0 ms"),
]


@cache
def report(job: str) -> Report:
    with TemporaryDirectory() as path:
        directory = Path(path)
        JOBS[job](directory)
        files = list(directory.iterdir())
        is_log = files[0].suffix == ".log"
        return report_of(begun(files[0] if is_log else directory, None, print).whole(None))


def facts(made: str) -> list[tuple[str, str]]:
    return [(key, value) for key, _, value in (line.partition(": ") for line in made.splitlines()[1:])]


def test_twenty_questions_of_ten_jobs() -> None:
    assert (len(QUESTIONS), len(JOBS)) == (20, 10)
    assert {job for job, *_ in QUESTIONS} == set(JOBS)


@pytest.mark.parametrize(("job", "question", "key", "answer"), QUESTIONS, ids=[each[1] for each in QUESTIONS])
def test_a_question_is_answered_by_its_key(job: str, question: str, key: str, answer: str) -> None:
    assert answer in dict(facts(render(report(job))))[key], question


def squeezed(said: str) -> str:
    return re.sub(r"\s+", " ", said)


@pytest.mark.parametrize("job", JOBS)
def test_it_says_nothing_that_the_report_does_not_say(job: str) -> None:
    """Each figure and sentence stands in the whole text, or in the JSON, as names of findings do."""
    content = report(job).content.as_dict()
    whole = squeezed(text.render(report(job)) + str(content) + report(job).subject + report(job).state)
    strange = [
        (key, part)
        for key, value in facts(render(report(job)))
        if key not in ("findings", "left_out", "unknown.figures")
        for part in ([value] if not key.startswith("time.") else re.findall(r"[\d.,]*\d", value))
        if squeezed(part.removesuffix("...")) not in whole
    ]
    assert strange == []


@pytest.mark.parametrize("job", JOBS)
def test_each_key_is_there_once(job: str) -> None:
    keys = [key for key, _ in facts(render(report(job)))]
    assert sorted(set(keys)) == sorted(keys)


def test_each_key_of_a_job_is_there_once(tmp_path: Path) -> None:
    """Its times are a tree, and its findings explain one another."""
    beside(tmp_path, "training", 10, 80, (7,), pid=7)
    for place, name in enumerate(("rpc", "trace", "profile")):
        beside(tmp_path / name, name, 20 + place, 60, (7,), pid=6)
    job = report_of(begun(tmp_path, None, print).whole(None))
    links = [Link(replace(FINDING, title=title), 0.3) for title in ("a slow stage", "a slow unit")]
    made = render(replace(job, findings=Findings([replace(FINDING, links=links)], [])))
    keys = [key for key, _ in facts(made)]
    assert sorted(set(keys)) == sorted(keys)
    assert {"finding.1.in_part_by.2", "time.Tree.wall_time.productive.forward"} <= {*keys}
    depths = [key.count(".") for key in keys if key.startswith("time.Tree.")]
    assert depths == sorted(depths), "what does not fit is a part, and no whole"


@pytest.mark.parametrize("word", ["finding ", "气泡 "])
def test_it_is_bounded_whatever_is_found(word: str) -> None:
    one = replace(FINDING, title=word * 200, causes=[word * 50] * 9)
    many = replace(
        every_block(),
        findings=Findings([one] * 300, [word * 100] * 300),
        facts=[Note(word * 40)] * 500,
        tiles=every_block().tiles * 100,
    )
    made = render(many)
    assert tokens(made) <= 2_000
    assert {"run", "finding.1", "unknown.1", "figure.speed", "left_out"} <= {key for key, _ in facts(made)}


def test_it_is_english_in_any_language() -> None:
    made = render(report("rpc"))
    with using(CHINESE):
        assert render(report("rpc")) == made
    assert tokens(made) < 500
