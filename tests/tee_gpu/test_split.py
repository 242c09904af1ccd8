"""The split model of examples/tee_gpu with its GPU side in this process: the numbers, and the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from split_inference import model as models
from split_inference.forward import ProtectedModel, SplitOptions
from split_inference.gpu import Ask
from split_inference.gpu_side import MAX_SEQUENCES, GpuSide
from split_inference.methods import METHODS
from split_inference.model import ModelChoice, make_model, model_sizes
from split_inference.traffic import REVEALS, ModelSizes, Pass, Stage, declaration, pass_traffic
from transformers import LlamaConfig, MistralConfig, Qwen3Config

from flagscale_perf.spine.errors import PerfError
from tests.tee_gpu.local_gpu import LocalGPU

CPU = torch.device("cpu")
TYPES = [torch.float32, torch.float16, torch.bfloat16]
FAMILIES = ["tiny", "tiny-mha", "qwen2-tiny", "mistral-tiny", "qwen3-tiny"]
EAGER = [Stage.CALLS6, Stage.CALLS4]
IDS = torch.arange(1, 49).reshape(2, 24)
TINY = ModelChoice("tiny", layers=2)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def split(choice=TINY, dtype=torch.float32, **options) -> tuple[ProtectedModel, LocalGPU]:
    gpu = LocalGPU(GpuSide(choice, dtype, CPU))
    return ProtectedModel(gpu, SplitOptions(**options)), gpu


def whole_logits(choice, dtype, ids) -> torch.Tensor:
    with torch.no_grad():
        return make_model(choice, dtype)(ids, logits_to_keep=1).logits


def assert_equal_to_whole(logits, whole) -> None:
    if whole.dtype == torch.float32:
        assert (logits - whole).abs().max() <= 1e-5
    else:
        assert torch.equal(logits, whole)


# --- the same numbers as transformers' own model


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("config", FAMILIES)
def test_logits_are_those_of_the_monolithic_model(config, dtype) -> None:
    choice = ModelChoice(config, layers=2)
    whole = whole_logits(choice, dtype, IDS)
    for stage in EAGER:
        for repeat_kv in (True, False):
            model, _ = split(choice, dtype, stage=stage, repeat_kv=repeat_kv)
            assert_equal_to_whole(model.logits(IDS), whole)


@pytest.mark.parametrize("stage", [Stage.FUSED_ATTENTION, Stage.FUSED_BLOCKS, Stage.FUSED_LAYER])
@pytest.mark.parametrize("config", FAMILIES)
def test_logits_with_attention_of_the_gpu_side(config, stage) -> None:
    choice = ModelChoice(config, layers=2)
    model, _ = split(choice, stage=stage)
    assert (model.logits(IDS) - whole_logits(choice, torch.float32, IDS)).abs().max() <= 1e-5


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("config", FAMILIES)
def test_generated_tokens_are_those_of_transformers(config, stage) -> None:
    choice = ModelChoice(config, layers=2)
    expected = make_model(choice, torch.float32).generate(
        IDS,
        attention_mask=torch.ones_like(IDS),
        max_new_tokens=8,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    model, _ = split(choice, stage=stage)
    assert model.generate(IDS, 8).tolist() == expected.tolist()


@pytest.mark.parametrize("stage", Stage)
def test_a_prompt_in_two_parts(stage) -> None:
    model, _ = split(stage=stage)
    cache = model.cache(*IDS.shape)
    model.logits(IDS[:, :7], cache)
    assert (model.logits(IDS[:, 7:], cache) - model.logits(IDS)).abs().max() <= 1e-5


def test_micro_batches_are_the_batch() -> None:
    model, gpu = split(dtype=torch.bfloat16)
    assert torch.equal(model.logits(IDS, micro_batches=2), model.logits(IDS))
    methods = [call.method for call in gpu.traffic]
    assert methods[:7] == ["Init", "Embedding", "Embedding", "BatchLinear", "BatchLinear", "Matmul", "Matmul"]


def test_weights_of_a_directory(tmp_path) -> None:
    choice = ModelChoice("qwen3-tiny", layers=1, seed=3)
    make_model(choice, torch.float32).save_pretrained(tmp_path)
    model, _ = split(ModelChoice(directory=tmp_path), torch.bfloat16)
    whole = make_model(ModelChoice(directory=tmp_path), torch.bfloat16)
    one = IDS[:1]  # of two, a product may differ in its last bit by how their last rows lie in memory
    with torch.no_grad():
        assert torch.equal(model.logits(one), whole(one, logits_to_keep=1).logits)


def test_nothing_asks_for_gradients() -> None:
    model, _ = split()
    assert not model.logits(IDS).requires_grad


# --- bytes


@st.composite
def shapes(draw) -> tuple[ModelSizes, type]:
    kv_heads = draw(st.integers(1, 3))
    heads = kv_heads * draw(st.sampled_from([1, 2, 3]))
    head_dim = 2 * draw(st.integers(1, 6))
    made = draw(st.sampled_from([LlamaConfig, Qwen3Config]))
    sizes = ModelSizes(
        layers=draw(st.integers(1, 2)),
        hidden=heads * head_dim,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=draw(st.integers(1, 40)),
        vocab=draw(st.integers(60, 90)),
    )
    return sizes, made


def choice_of(sizes: ModelSizes, made: type, monkeypatch) -> ModelChoice:
    names = (
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "vocab_size",
    )
    values = {
        name: getattr(sizes, field) for name, field in zip(names, sizes.__dataclass_fields__, strict=True)
    }
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    monkeypatch.setitem(models.CONFIGS, "drawn", (made, values | rope))
    return ModelChoice("drawn")


@settings(max_examples=200)
@given(
    shapes(),
    st.sampled_from(TYPES),
    st.sampled_from(Stage),
    st.booleans(),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_bytes_are_the_closed_form_to_the_byte(shape, dtype, stage, repeat_kv, batch, tokens, steps) -> None:
    with pytest.MonkeyPatch.context() as patch:
        model, gpu = split(choice_of(*shape, patch), dtype, stage=stage, repeat_kv=repeat_kv)
    assert model.sizes == shape[0]
    gpu.traffic.clear()
    ids = torch.arange(batch * tokens).reshape(batch, tokens)
    cache = model.cache(batch, tokens + steps)
    model.logits(ids, cache)
    run = Pass(stage, batch, tokens, 0, dtype.itemsize, repeat_kv)
    expected = pass_traffic(shape[0], run)
    for step in range(steps):
        model.logits(ids[:, :1], cache)
        expected += pass_traffic(shape[0], replace(run, tokens=1, cached=tokens + step))
    assert gpu.traffic == expected


def test_the_default_model_has_the_calls_of_the_requirement() -> None:
    assert len(pass_traffic(model_sizes(models.configuration(ModelChoice())), Pass())) == 98


# --- what the GPU side refuses


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (Ask("Embedding", [torch.tensor([[4096]])], {}), "token ids must be 0 to 4095"),
        (Ask("Embedding", [torch.tensor([[-1]])], {}), "token ids must be 0 to 4095"),
        (Ask("Embedding", [torch.tensor([1])], {}), "not int64 (batch, tokens)"),
        (Ask("BatchLinear", [torch.ones(1, 1, 256)], {"layer": 2, "weights": "qkv"}), "has 0 to 1"),
        (Ask("BatchLinear", [torch.ones(1, 1, 256)], {"layer": -1, "weights": "qkv"}), "has 0 to 1"),
        (
            Ask("BatchLinear", [torch.ones(1, 1, 256)], {"layer": 0, "weights": "mlp"}),
            "qkv, o, gate_up, down",
        ),
        (Ask("Matmul", [torch.ones(1, 3, 1, 4), torch.ones(1, 2, 4, 4)], {}), "3 heads cannot share 2"),
        (Ask("fused_layer", [torch.ones(1, 1, 256)], {"layer": 0, "cached": 3}), "begin it with its prompt"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.method,
)
def test_refused(ask, said) -> None:
    _, gpu = split()
    with pytest.raises(PerfError, match=".*") as caught, torch.no_grad():
        gpu.submit(ask)
    assert said in str(caught.value)


def test_a_prompt_beyond_the_models_positions_is_refused() -> None:
    model, _ = split()
    model.facts.max_tokens = 10
    with pytest.raises(PerfError, match="24 tokens are more than the model's 10"):
        model.logits(IDS)


def test_the_gpu_side_keeps_a_bounded_number_of_sequences() -> None:
    model, gpu = split(stage=Stage.FUSED_LAYER)
    first = model.cache(1, 8)
    model.logits(IDS[:1], first)
    for _ in range(MAX_SEQUENCES):
        model.logits(IDS[:1])
    with pytest.raises(PerfError, match="begin it with its prompt"):
        model.logits(IDS[:1, :1], first)


@pytest.mark.parametrize(
    "scaling",
    [1.25, np.float32(1.25), np.float64(1.25), np.int64(2), np.array(1.25), torch.tensor(1.25)],
    ids=repr,
)
def test_init_takes_every_kind_of_number(scaling) -> None:
    side = GpuSide(TINY, torch.float32, CPU)
    side.model.model.rotary_emb.attention_scaling = scaling
    assert ProtectedModel(LocalGPU(side))._rope_scaling == float(scaling)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (ModelChoice("tyni"), "--config 'tyni' is not known; write one of: tiny,"),
        (ModelChoice(directory=models.Path("absent")), "must be a directory with config.json"),
    ],
)
def test_unusable_models(choice, said) -> None:
    with pytest.raises(PerfError, match=".*") as caught:
        make_model(choice, torch.float32)
    assert said in str(caught.value)


def test_type_by_environment(monkeypatch) -> None:
    monkeypatch.setenv("LLAMA_DTYPE", "bfloat16")
    assert models.chosen_dtype(None, CPU) == torch.bfloat16
    monkeypatch.setenv("LLAMA_DTYPE", "")
    assert models.chosen_dtype(None, CPU) == torch.float32
    assert models.chosen_dtype(None, torch.device("cuda:0")) == torch.bfloat16
    monkeypatch.setenv("LLAMA_DTYPE", "half")
    with pytest.raises(PerfError, match="LLAMA_DTYPE or --dtype is 'half'; write one of: float32, float16"):
        models.chosen_dtype(None, CPU)


def test_a_sliding_window_is_refused(tmp_path) -> None:
    MistralConfig(sliding_window=64).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(PerfError, match="layers with sliding-window attention"):
        models.configuration(ModelChoice(directory=tmp_path))


# --- what leaves the protected side


def test_the_protected_side_keeps_the_cache_of_every_other_stage() -> None:
    for stage in set(Stage) - {Stage.FUSED_LAYER}:
        model, _ = split(stage=stage)
        assert declaration(model.methods()).endswith("The key-value cache is kept on the protected side.")


def test_every_method_declares_what_it_is_shown() -> None:
    assert REVEALS.keys() == METHODS.keys()


def test_declaration_of_a_stage() -> None:
    model, _ = split(stage=Stage.FUSED_LAYER)
    assert declaration(model.methods()) == (
        "Plaintext that the GPU side is shown:\n"
        "  Embedding        the token ids: the text itself\n"
        "  fused_layer      everything: hidden state, norms, scores, softmax, residuals and the key-value "
        "cache are the GPU side's. This gives up the protection\n"
        "  LMHead           the last token's hidden state and its logits\n"
        "The key-value cache is kept on the GPU side."
    )
