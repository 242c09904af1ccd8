"""Run files of earlier versions go through every command. They are of real trainings (FlagScale 0.8.0, two
ranks, 30 iterations), each recorded by a version whose records were not yet what they are today.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf import open_run
from flagscale_perf.cli import main
from flagscale_perf.store.run_file import RunFile
from flagscale_perf.training.records import StepRecord

FILES = sorted((Path(__file__).parents[1] / "earlier_files").glob("perf_records_*.jsonl"))
COMMANDS = [
    *(["report", "--format", name] for name in ("text", "markdown", "json", "csv", "html")),
    ["watch", "--once"],
    ["trace-export", "-o", "-"],
]


@pytest.fixture(params=FILES, ids=["before the header named instrument, host and process", "before traces"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    copy: Path = tmp_path / request.param.name
    copy.write_bytes(request.param.read_bytes())
    return copy


def test_nothing_is_left_out(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    run = RunFile(path)
    assert (run.header.instrument, len(list(run))) == ("training", len(lines))
    steps = [record for record in run if isinstance(record, StepRecord)]
    recorded = [line["iteration"] for line in lines if line["kind"] == "step"]
    assert [step.iteration for step in steps] == recorded == list(range(1, 31))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_reads_it(path: Path, words: list[str], capsys) -> None:
    assert main([*words, str(path)]) == 0
    shown = capsys.readouterr()
    assert shown.err == "" and "30" in shown.out


def test_it_is_listed_and_compared(path: Path, capsys) -> None:
    for words in (["runs"], ["report", "--all-sessions"]):
        assert main([*words, str(path.parent)]) == 0
        assert path.stem.removeprefix("perf_records_") in capsys.readouterr().out
    assert main(["compare", str(path), str(path)]) == 0
    assert "change +0.00 %" in capsys.readouterr().out


def test_a_script_opens_it(path: Path) -> None:
    assert sum(isinstance(record, StepRecord) for record in open_run(path).records()) == 30
