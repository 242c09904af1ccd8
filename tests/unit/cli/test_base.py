"""What is said to a user who types something wrong: all of it in one golden file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from flagscale_perf.cli import main
from flagscale_perf.spine.jsonl import encode
from tests.fakes import make_header
from tests.golden import golden

SESSION = "20240129_103000"
MISTAKES = """\
report
report nowhere
report logs x
report empty
report outputs
report several
report logs --session 20240129_103001
report logs/perf_records_20240129_103000.jsonl --session 20240129_103001
report logs --session
report logs --all-sessions --session 20240129_103000
report logs --all-sessions --format json
report logs --fromat html
report logs --format pdf
report logs --format html -o report.md
report logs --format json -o report.dat
report logs -o report.rst
report logs -o nowhere/report.txt
report logs -o empty
report logs -o logs/perf_records_20240129_103000.jsonl/x.txt
report views/perf_summary_20240129_103000.json
report views/perf_metrics_20240129_103000.1.log
report views/perf_intervals_20240129_103000.csv
report views/perf_realtime.log
report views/events.out.tfevents.1706524200.node0
report foreign/perf_records_20240129_103000.jsonl
report foreign/run.jsonl
report foreign/nonsense.jsonl
report foreign/other.jsonl
report foreign/pipe
report /dev/null
watch
watch nowhere --once
watch nowhere/deeper
watch empty --once
watch logs
watch logs --session 1 --once
watch logs --onec
capture logs
capture logs --steps 0
capture logs --steps two
capture logs --steps 3
capture outputs --steps 3
trace-export nowhere
trace-export logs -o nowhere/trace.json
trace-export logs -o empty
trace-export foreign/run.jsonl
compare logs
compare logs nowhere
compare logs empty
compare logs logs --fail-if-slower x
compare logs logs --warmup -1
compare logs logs --format csv
compare logs logs -o a.csv
compare logs logs -o nowhere/a.html
compare logs logs -o empty
runs
runs nowhere
runs empty
runs logs/perf_records_20240129_103000.jsonl
runs logs --format png
runs logs -o runs.png
runs logs -o nowhere/runs.html
serve
serve nowhere/deeper
serve logs --port two
serve logs --prot 80
flops
flops --args nowhere.json
flops --args empty
flops --args nowhere.yaml
flops --args yaml/broken.yaml
flops --args yaml/list.yaml
flops --args yaml/typo.yaml
flops --args yaml/loop.yaml
flops --args yaml/package.yaml
flops --args yaml/model.txt
flops --args yaml/model.yaml
flops --args yaml/7b.yaml --batch-size 0
flops --args yaml/7b.yaml --seq-length two
flops --args yaml/7b.yaml --packed-seq-lens 4,x
flops --args yaml/7b.yaml --packed-seq-lens 99999999
flops --args yaml/7b.yaml --jsno
peak --dtype int8
serve x --port two
peak --dtype fp8
peak H200
enable now
disable --all
doctor --fix
reprot logs
--reprot
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with runs, and with what is taken for one."""
    name = f"perf_records_{SESSION}.jsonl"
    for directory in ("logs", "outputs/logs/perf_monitor", "several/a", "several/b"):
        (tmp_path / directory).mkdir(parents=True)
        (tmp_path / directory / name).write_text(golden("perf_records.jsonl"))
    for directory in ("empty", "views", "foreign", "yaml"):
        (tmp_path / directory).mkdir()
    for view in (
        f"summary_{SESSION}.json",
        f"metrics_{SESSION}.1.log",
        f"intervals_{SESSION}.csv",
        "realtime.log",
    ):
        (tmp_path / "views" / f"perf_{view}").write_text("x")
    (tmp_path / "views/events.out.tfevents.1706524200.node0").write_bytes(b"\0")
    (tmp_path / "foreign" / name).write_bytes(b"PK\x03\x04 a zip\n")
    (tmp_path / "foreign/run.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "foreign/nonsense.jsonl").write_bytes(encode(make_header("nonsense")))
    (tmp_path / "foreign/other.jsonl").write_bytes(
        encode(make_header()).replace(b'"instrument":"training"', b'"instrument":"dance"')
    )
    os.mkfifo(tmp_path / "foreign/pipe")
    files = {
        "broken.yaml": "a: [",
        "list.yaml": "- 1",
        "typo.yaml": "defaults: [7a, _self_]",
        "loop.yaml": "defaults: [loop]",
        "package.yaml": "defaults: [{a@b: c}]",
        "model.txt": "num_layers: 4",
        "model.yaml": "num_layers: 4",
    }
    for file, content in files.items():
        (tmp_path / "yaml" / file).write_text(content)
    shutil.copy(Path(__file__).parents[3] / "conf/train/7b.yaml", tmp_path / "yaml")
    old = tmp_path.stat().st_mtime - 1000
    os.utime(tmp_path / "empty", (old, old))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The command, its exit code, and what it says on stderr."""
    try:
        code = main(words.split())
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), words
    assert 1 <= len(err.splitlines()) <= 2 and "Traceback" not in err, (words, err)
    return f"$ flagscale-perf {words}\n{err}"


def test_every_answer_is_two_lines_at_most(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = "\n".join(answer(words, capsys) for words in MISTAKES.splitlines())
    assert made == golden("wrong_input.txt")
