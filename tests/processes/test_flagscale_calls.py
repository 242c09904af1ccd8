"""The monitor adds no synchronise, no collective and no reading of a tensor: every such call of a real run is
counted.
"""

import json

import pytest

from tests.processes import flagscale as fs
from tests.processes.shared_runs import ITERATIONS, Shared, with_monitor, without

pytestmark = pytest.mark.host

# They read a variable and nothing else: the host's printing asks, and where a rank stands in the pipeline is
# asked once.
QUERIES = {"torch.distributed.get_rank", "torch.distributed.is_available", "torch.distributed.is_initialized"}


def calls_of(run: Shared, rank: int) -> dict[str, int]:
    counts = json.loads((run.directory / f"calls_{rank}.json").read_text())
    return {name: count for name, count in counts.items() if name not in QUERIES}


def test_the_host_makes_the_same_calls_as_without_the_monitor(tmp_path_factory):
    off, on = without(tmp_path_factory, "DP2"), with_monitor(tmp_path_factory, "DP2")
    assert len(fs.records(on.directory / "perf")) == ITERATIONS
    for rank in range(2):
        assert calls_of(off, rank)["torch.distributed.all_reduce"] > ITERATIONS
        assert calls_of(on, rank) == calls_of(off, rank)
