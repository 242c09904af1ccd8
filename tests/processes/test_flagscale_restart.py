"""torchrun starts a crashed FlagScale training again: two sessions that fit together."""

import json

import pytest

from tests.processes import flagscale as fs
from tests.warm_ranks import torchrun_environment

pytestmark = pytest.mark.host

SCRIPT = """
import os, runpy, sys
import flagscale.train.train as training
original = training.train_step
def train_step(*args, **kwargs):
    from megatron.training.global_vars import get_args
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and get_args().curr_iteration == 4:
        raise RuntimeError("a node was lost")
    return original(*args, **kwargs)
training.train_step = train_step
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def sessions(directory):
    """(facts, steps, end) of each run file, in the order of the starts."""
    found = []
    for path in directory.glob("perf_records_*.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        end = [row["reason"] for row in rows if row["kind"] == "end"]
        found.append((rows[0]["facts"], [row for row in rows if row["kind"] == "step"], end))
    return sorted(found, key=lambda session: session[0]["restart_count"])


def test_a_restarted_job_leaves_two_sessions_that_fit_together(tmp_path):
    (tmp_path / "crashing.py").write_text(SCRIPT)
    checkpoints = [
        "--save",
        tmp_path / "ckpt",
        "--load",
        tmp_path / "ckpt",
        "--save-interval",
        "2",
        "--ckpt-format",
        "torch",
    ]
    words = [
        *fs.SMALL,
        *map(str, checkpoints),
        "--train-iters",
        "7",
        "--enable-perf-monitor",
        "--perf-log-dir",
        "perf",
    ]
    command = fs.torchrun(1, "--max-restarts=1", *fs.launched("crashing.py", fs.train_gpt(), *words))
    finished = fs.run(command, tmp_path, **torchrun_environment(tmp_path, fs.environment()["PYTHONPATH"]))
    assert finished.returncode == 0, finished.output[-3000:]
    fs.wait_until(lambda: all(end for _, _, end in sessions(tmp_path / "perf")), "the end of both run files")
    (first, before, first_end), (second, after, second_end) = sessions(tmp_path / "perf")
    assert (first["restart_count"], first["resume_iteration"], first_end) == (
        0,
        0,
        ["exception RuntimeError"],
    )
    assert (second["restart_count"], second["resume_iteration"], second_end) == (1, 4, ["completed"])
    assert [step["iteration"] for step in before] == [1, 2, 3, 4]
    assert [step["iteration"] for step in after] == [5, 6, 7]
    assert [(step["samples"], step["skipped_samples"], step["warmup"]) for step in after] == [
        (4, 0, 1),
        (4, 0, 0),
        (4, 0, 0),
    ]
    assert len(list((tmp_path / "perf").glob("perf_summary_*.json"))) == 2
