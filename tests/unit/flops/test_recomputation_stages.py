"""How a pipeline cuts the layers."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.recomputation import layers_per_chunk
from flagscale_perf.flops.sources import Arguments
from flagscale_perf.spine.errors import PerfError


def chunks(layers, **args):
    return layers_per_chunk(Arguments(args), layers)


@pytest.mark.parametrize(
    ("args", "layers", "expected"),
    [
        ({}, 8, [8]),
        ({"pipeline_model_parallel_size": 4}, 8, [2, 2, 2, 2]),
        ({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2}, 8, [2, 2, 2, 2]),
        ({"pipeline_model_parallel_size": 2, "num_layers_per_virtual_pipeline_stage": 1}, 8, [1] * 8),
        ({"pipeline_model_parallel_size": 2, "num_virtual_stages_per_pipeline_rank": 4}, 8, [1] * 8),
        ({"pipeline_model_parallel_size": 2, "decoder_first_pipeline_num_layers": 13}, 27, [13, 14]),
        (
            {
                "pipeline_model_parallel_size": 4,
                "decoder_first_pipeline_num_layers": 3,
                "decoder_last_pipeline_num_layers": 1,
            },
            8,
            [3, 2, 2, 1],
        ),
        (
            {
                "pipeline_model_parallel_size": 2,
                "decoder_first_pipeline_num_layers": 5,
                "decoder_last_pipeline_num_layers": 3,
            },
            8,
            [5, 3],
        ),
        (
            {
                "pipeline_model_parallel_size": 2,
                "account_for_embedding_in_pipeline_split": True,
                "account_for_loss_in_pipeline_split": True,
                "virtual_pipeline_model_parallel_size": 2,
            },
            6,
            [1, 2, 2, 1],
        ),
        ({"pipeline_model_parallel_layout": "Et*2|tL"}, 3, None),
        ({"use_dualpipev": True}, 4, None),
    ],
)
def test_chunks_in_the_models_order(args, layers, expected):
    assert chunks(layers, **args) == expected


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"pipeline_model_parallel_size": 3}, "8 layers cannot be divided over 3 pipeline stages"),
        (
            {"decoder_first_pipeline_num_layers": 4, "decoder_last_pipeline_num_layers": 4},
            "over 1 pipeline stages",
        ),
        (
            {"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 3},
            "not divisible into 3 virtual stages",
        ),
    ],
)
def test_refused(args, says):
    with pytest.raises(PerfError, match=says):
        chunks(8, **args)
