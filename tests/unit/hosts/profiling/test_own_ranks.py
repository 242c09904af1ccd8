"""A model with random weights, profiled on ranks that are processes of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.hosts.profiling.own_model import TRAIN, OwnRun
from flagscale_perf.hosts.profiling.own_ranks import run_ranks
from flagscale_perf.profile.records import CollectiveRecord, RankRecord, WindowRecord
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.peers.records import NameRecord
from tests.members import finished
from tests.unit.hosts.profiling.test_own_model import SMALL
from tests.warm_ranks import make_python_warm


@pytest.fixture(autouse=True)
def _warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_python_warm(tmp_path, monkeypatch)


def _run(tmp_path: Path, tensor: int, pipeline: int, **changed: int) -> OwnRun:
    (tmp_path / "config.json").write_text(json.dumps(SMALL | changed))
    return OwnRun(tmp_path, 1, 1, 8, 2, 64, TRAIN, tmp_path / "run", tensor, pipeline)


def test_two_stages_are_in_one_run_file(tmp_path: Path) -> None:
    run = _run(tmp_path, 1, 2)
    run_ranks(run)
    records = finished(run.directory)
    names = {(each.process, each.number): each.text for each in records if isinstance(each, NameRecord)}
    ranks = {each.process: each for each in records if isinstance(each, RankRecord)}
    assert sorted((each.rank, each.pipeline, each.pipeline_size) for each in ranks.values()) == [
        (0, 0, 2), (1, 1, 2),
    ]  # fmt: skip
    assert [each.reason for each in records if isinstance(each, WindowRecord)] == [0, 0]
    layers = {
        (ranks[process].rank, text.split(".")[2])
        for (process, _), text in names.items()
        if text.startswith("model.layers.")
    }
    assert layers == {(0, "0"), (1, "1")}
    messages = [each for each in records if isinstance(each, CollectiveRecord)]
    # one step, two micro-batches: each is sent forward, and its gradient back
    assert sorted((ranks[each.process].rank, each.is_send) for each in messages) == [
        (rank, is_send) for rank in (0, 1) for is_send in (0, 0, 1, 1)
    ]  # fmt: skip


def test_a_mistake_that_a_rank_finds_is_told_as_one(tmp_path: Path) -> None:
    with pytest.raises(
        PerfError, match="^--tp 2: the model's num_key_value_heads, 1, is not a multiple of it"
    ):
        run_ranks(_run(tmp_path, 2, 1))
