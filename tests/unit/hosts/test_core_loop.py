"""A model of Megatron-Core says by itself what its FLOPs need, and what it cannot say is named."""

import sys
from types import SimpleNamespace

import pytest

from flagscale_perf.flops_calculator import ModelShape
from flagscale_perf.hosts.core_loop import GPT_MODULE, CoreLoop, Training
from flagscale_perf.hosts.timers import SilentTimers
from flagscale_perf.spine.errors import PerfError

SIZES = Training(
    seq_length=8, micro_batch_size=2, global_batch_size=4, train_iters=3, iteration=1, consumed_samples=4
)


def swish(x):
    return x


def quick_gelu(x):
    return x


class GPTModel:
    """Shaped like Megatron-Core's."""

    vocab_size, max_sequence_length, position_embedding_type = 96, 32, "rope"
    share_embeddings_and_output_weights = False

    def __init__(self, **config):
        plain = {
            "num_layers": 2,
            "hidden_size": 8,
            "num_attention_heads": 4,
            "num_query_groups": 4,
            "kv_channels": 2,
            "ffn_hidden_size": 32,
            "gated_linear_unit": False,
            "activation_func": swish,
            "num_moe_experts": None,
            "num_layers_in_first_pipeline_stage": None,
            "num_layers_in_last_pipeline_stage": None,
            "tensor_model_parallel_size": 1,
            "pipeline_model_parallel_size": 1,
            "context_parallel_size": 1,
            "expert_model_parallel_size": 1,
            "bf16": True,
            "fp16": False,
            "recompute_granularity": None,
        }
        self.config = SimpleNamespace(**plain | config)
        self.weights = {"decoder.weight": SimpleNamespace(requires_grad=True)}

    def named_parameters(self):
        return self.weights.items()


class Wrapper:
    def __init__(self, module):
        self.module = module


@pytest.fixture
def gpt(monkeypatch):
    monkeypatch.setitem(sys.modules, GPT_MODULE, SimpleNamespace(GPTModel=GPTModel))
    return lambda **config: [Wrapper(Wrapper(GPTModel(**config)))]


def shape(model):
    return ModelShape.from_args(CoreLoop(model, SIZES, True).model_args())


def test_phases_are_told_where_the_model_has_the_monitors_timers(gpt):
    ours = SilentTimers()
    told = [
        CoreLoop(gpt(**config), SIZES, True).names_phases()
        for config in ({}, {"timers": None}, {"timers": object()}, {"timers": ours})
    ]
    assert told == [False, False, False, True]


def test_the_built_model_says_what_it_multiplies(gpt):
    dense = shape(gpt())
    assert (dense.layers, dense.hidden, dense.kv_groups, dense.ffn, dense.vocab, dense.gated) == (
        2,
        8,
        4,
        32,
        96,
        False,
    )
    assert (dense.tied_embeddings, dense.learned_positions, dense.micro_batch) == (False, 0, 2)


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        ({"num_query_groups": 2}, "kv_groups", 2),
        ({"gated_linear_unit": True}, "gated", True),
        ({"gated_linear_unit": True, "activation_func": quick_gelu}, "gated", True),
        ({"activation_func": quick_gelu}, "gated", False),
        ({"mtp_num_layers": 1}, "mtp_layers", 1),
    ],
)
def test_each_setting_of_the_core_arrives(gpt, config, field, value):
    assert getattr(shape(gpt(**config)), field) == value


def test_experts_and_uneven_stages_arrive_under_megatrons_names(gpt):
    experts = shape(
        gpt(num_moe_experts=4, moe_router_topk=2, moe_ffn_hidden_size=16, moe_layer_freq=[0, 1])
    ).experts
    assert (experts.count, experts.topk, experts.ffn_hidden_size, experts.layers) == (4, 2, 16, (False, True))
    block = {
        "recompute_granularity": "full",
        "recompute_method": "block",
        "recompute_num_layers": 2,
        "num_layers": 4,
    }
    stages = {"pipeline_model_parallel_size": 2, "num_layers_in_first_pipeline_stage": 1}
    assert shape(gpt(**block, **stages)).recompute.full_layers == (True, True, True, False)


def test_what_cannot_be_counted_is_named(gpt):
    with pytest.raises(PerfError, match="Wrapper is not a GPTModel|SimpleNamespace is not a GPTModel"):
        CoreLoop(SimpleNamespace(config=GPTModel().config), SIZES, True).model_args()
    model = gpt()
    model[0].module.module.weights["lora.weight"] = SimpleNamespace(requires_grad=False)
    with pytest.raises(PerfError, match="lora.weight is frozen"):
        shape(model)


def test_parallel_sizes_follow_from_the_world(gpt, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("RANK", "3")
    loop = CoreLoop(gpt(tensor_model_parallel_size=2, pipeline_model_parallel_size=2), SIZES, True)
    assert (loop.data_parallel_size(), loop.rank()) == (2, 3)
