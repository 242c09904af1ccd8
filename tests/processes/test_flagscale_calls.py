"""The monitor adds no synchronise, no collective and no reading of a tensor: every such call of a real run is
counted.
"""

import json
from pathlib import Path

import pytest

from tests.processes import flagscale as fs

pytestmark = pytest.mark.host

# They read a variable and nothing else: the host's printing asks, and where a rank stands in the pipeline is
# asked once.
QUERIES = {"torch.distributed.get_rank", "torch.distributed.is_available", "torch.distributed.is_initialized"}
SCRIPT = Path(__file__).with_name("counted_calls.py")
MONITOR = ["--enable-perf-monitor", "--perf-breakdown", "--perf-log-interval", "2", "--perf-log-dir", "perf"]


def calls_of(directory: Path, *more: str) -> list[dict[str, int]]:
    """Of each of two data-parallel ranks."""
    directory.mkdir()
    words = [
        SCRIPT,
        fs.train_gpt(),
        *fs.TINY,
        "--train-iters",
        "6",
        "--save",
        directory / "ckpt",
        "--save-interval",
        "3",
        *more,
    ]
    finished = fs.run(fs.workers(2, *fs.launched(*map(str, [*words, "--ckpt-format", "torch"]))), directory)
    assert finished.returncode == 0, finished.output[-3000:]
    counts = [json.loads((directory / f"calls_{rank}.json").read_text()) for rank in range(2)]
    return [{name: count for name, count in each.items() if name not in QUERIES} for each in counts]


def test_the_host_makes_the_same_calls_as_without_the_monitor(tmp_path):
    without, with_monitor = calls_of(tmp_path / "off"), calls_of(tmp_path / "on", *MONITOR)
    assert len(fs.records(tmp_path / "on" / "perf")) == 6
    for rank in range(2):
        assert without[rank]["torch.distributed.all_reduce"] > 6
        assert with_monitor[rank] == without[rank]
