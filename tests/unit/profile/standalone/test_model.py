"""A model with random weights, divided among ranks that are processes of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.profile.records import CollectiveRecord, RankRecord, WindowRecord
from flagscale_perf.profile.standalone.model import GENERATE, TRAIN, Run, cache_name
from flagscale_perf.profile.standalone.run import check, profile
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.peers.records import NameRecord
from tests.gloo_ranks import two_ranks
from tests.members import finished
from tests.unit.profile.standalone.test_run import SMALL

CLOSE = 1e-4


def _run(tmp_path: Path, tensor: int, pipeline: int, mode: str) -> Run:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    return Run(tmp_path, 1, 1, 8, 2, 64, mode, tmp_path / "run", tensor, pipeline)


@pytest.mark.long
def test_two_stages_are_in_one_run_file(tmp_path: Path) -> None:
    run = _run(tmp_path, 1, 2, GENERATE)
    profile(run)
    records = finished(run.directory)
    names = {(each.process, each.number): each.text for each in records if isinstance(each, NameRecord)}
    ranks = {each.process: each for each in records if isinstance(each, RankRecord)}
    assert sorted((each.rank, each.pipeline, each.pipeline_size) for each in ranks.values()) == [
        (0, 0, 2),
        (1, 1, 2),
    ]
    assert [each.reason for each in records if isinstance(each, WindowRecord)] == [0] * 4
    layers = {
        (ranks[process].rank, text.split(".")[2])
        for (process, _), text in names.items()
        if text.startswith("model.layers.")
    }
    assert layers == {(0, "0"), (1, "1")}
    messages = [each for each in records if isinstance(each, CollectiveRecord) and each.is_send is not None]
    # a prefill and a decode: each rank has what the first stage sends to the second
    assert sorted((ranks[each.process].rank, each.is_send) for each in messages) == [
        (0, 1),
        (0, 1),
        (1, 0),
        (1, 0),
    ]


@pytest.mark.long
def test_a_mistake_that_a_rank_finds_is_told_as_one(tmp_path: Path) -> None:
    with pytest.raises(
        PerfError, match="^--tp 2: the model's num_key_value_heads, 1, is not a multiple of it"
    ):
        profile(_run(tmp_path, 2, 1, TRAIN))


def test_training_of_a_pipeline_is_left_to_flagscale(tmp_path: Path) -> None:
    with pytest.raises(PerfError, match="^--pp 2 --mode train: transformers' pipeline only generates"):
        check(_run(tmp_path, 1, 2, TRAIN))


def test_a_divided_model_has_the_whole_ones_loss_and_gradients(tmp_path: Path) -> None:
    for found in two_ranks("tests.divided_ranks", tmp_path):
        assert found["own_loss"] == pytest.approx(found["loss"], rel=CLOSE)
        assert len(found["apart"]) > 20
        assert max(found["apart"].values()) < CLOSE, found["apart"]


class _Until523:
    def forward(self, input_ids: object, past_key_values: object = None) -> None: ...


class _Since524:
    def forward(self, input_ids: object, cache: object = None) -> None: ...


def test_keys_and_values_are_passed_by_the_name_that_the_model_has() -> None:
    assert (cache_name(_Until523()), cache_name(_Since524())) == ("past_key_values", "cache")
