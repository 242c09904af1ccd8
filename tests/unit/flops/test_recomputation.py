"""Recomputation that FlagScale sets stage by stage; the other forms are in test_sources.py."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.recomputation import recompute_of
from flagscale_perf.flops.shape import Recompute
from flagscale_perf.flops_calculator import ModelShape
from tests.unit.flops.families.walks import SIZES

# 6 layers on 2 stages
FULL = {"pipeline_model_parallel_size": 2, "recompute_granularity": "full", "recompute_num_layers": 1}
UNIFORM, BLOCK = FULL | {"recompute_method": "uniform"}, FULL | {"recompute_method": "block"}


def varying(base: dict[str, object], **rows: object) -> Recompute:
    more = {f"recompute_{name}_per_stage_micro_batch": value for name, value in rows.items()}
    return recompute_of(Arguments(base | more), 6)


def layers(flags: str, mtp: bool = False) -> Recompute:
    return Recompute(full_layers=tuple(flag == "1" for flag in flags), full_mtp=mtp)


def test_a_part_that_nobody_counts_is_known_to_be_unknown() -> None:
    given = {"recompute_granularity": "selective", "recompute_modules": ["mlp", "mhc"]}
    assert recompute_of(Arguments(given), 2) == Recompute(modules=("mlp", "mhc"), known=False)
    shape = ModelShape.from_args(SIZES | given)
    assert shape.hardware_unknown == "not all of recompute_modules is counted: mlp, mhc"
    varying = ModelShape.from_args(SIZES | {"recompute_granularity_per_stage_micro_batch": [[1, 1, 0]]})
    assert varying.hardware_unknown == "recomputation varies by pipeline stage and micro-batch"


def test_each_stage_for_itself() -> None:
    # as on the command line: 1 stage, 4 micro-batches, the flag
    assert varying(UNIFORM, granularity=["[1, 4, 1]", "[1, 4, 0]"]) == layers("111000")
    assert varying(UNIFORM, granularity=["[2, 3, 1, 1, 1]"]) == layers("111111", mtp=True)
    # as in a running FlagScale: a flag for each of a stage's micro-batches
    assert varying(UNIFORM, granularity=[[0, 0, 0, 0], [1, 1, 1, 1]]) == layers("000111", mtp=True)
    assert varying(BLOCK, num_layers=["[1, 4, 2]", "[1, 4, 0]"]) == layers("110000")
    assert varying(BLOCK, method=["[1, 4, 0]", "[1, 4, 1]"]) == layers("111100")


def test_layers_that_are_repeated_as_one_do_not_cross_stages() -> None:
    def together(**more: object) -> tuple[int, ...]:
        return recompute_of(Arguments(UNIFORM | more), 6).together

    assert together() == ()  # each by itself
    assert together(recompute_num_layers=2) == (2, 1, 2, 1)
    assert together(recompute_num_layers=9) == (3, 3)
    assert together(recompute_num_layers=2, pipeline_model_parallel_size=1) == (2, 2, 2)
    by_stage = {"recompute_granularity_per_stage_micro_batch": ["[1, 4, 0]", "[1, 4, 1]"]}
    assert together(recompute_num_layers=2, **by_stage) == (1, 1, 1, 2, 1)


def test_where_layers_are_divided_by_hand_only_frozen_ones_are_not_known() -> None:
    by_hand = UNIFORM | {"recompute_num_layers": 2, "pipeline_model_parallel_layout": "Et*3|t*3L"}
    assert recompute_of(Arguments(by_hand), 6) == layers("111111", mtp=True)
    assert not recompute_of(Arguments(by_hand | {"frozen": ["layers.0"]}), 6).known


@pytest.mark.parametrize(
    "rows",
    [
        {"granularity": ["[1, 2, 1, 2, 0]", "[1, 4, 1]"]},  # a stage with both
        {"granularity": ["[1, 4, 1]"]},  # of one stage only
        {"granularity": ["no list", "[1, 4, 1]"]},
        {"granularity": 7},
    ],
)
def test_what_varies_within_a_stage_is_not_known(rows: dict[str, object]) -> None:
    assert varying(UNIFORM, **rows) == Recompute(known=False)


def test_virtual_stages_and_other_granularities_are_not_known() -> None:
    virtual = UNIFORM | {"num_virtual_stages_per_pipeline_rank": 3}
    assert varying(virtual, granularity=["[2, 4, 1]"]) == Recompute(known=False)
    assert varying({"recompute_granularity": "selective"}, granularity=["[1, 4, 1]"]) == Recompute(
        known=False
    )
