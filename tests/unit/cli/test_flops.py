"""`flagscale-perf flops`: one answer, as text and as JSON, from every kind of file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.cli import main
from flagscale_perf.cli.flops import _parse
from flagscale_perf.flops_calculator import ModelShape, count
from tests.golden import golden
from tests.oracle.tower_configurations import QWEN_VL, T5

REPO = Path(__file__).parents[3]
ARGS = {
    "num_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "group_query_attention": True,
    "num_query_groups": 2,
    "ffn_hidden_size": 224,
    "num_experts": 8,
    "moe_router_topk": 2,
    "swiglu": True,
    "padded_vocab_size": 512,
    "normalization": "RMSNorm",
    "add_bias_linear": False,
    "position_embedding_type": "rope",
    "untie_embeddings_and_output_weights": True,
    "seq_length": 64,
    "global_batch_size": 2,
}
YAML = """
system: {disable_bias_linear: true, tensor_model_parallel_size: 2}
model:
  num_layers: 2
  hidden_size: 64
  num_attention_heads: 8
  swiglu: true
  normalization: RMSNorm
  position_embedding_type: rope
  seq_length: 32
  global_batch_size: 4
data: {tokenizer: {vocab_size: 300, make_vocab_size_divisible_by: 64}}
"""
HF = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "intermediate_size": 96,
    "vocab_size": 100,
}


@pytest.fixture
def model(tmp_path):
    def write(content, name="model.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)

    return write


def test_text(model, capsys):
    assert main(["flops", "--args", model(ARGS), "--packed-seq-lens", "30,34,64"]) == 0
    assert capsys.readouterr() == (golden("flops.txt"), "")


def test_padding_has_a_column_where_there_is_any(model, capsys):
    padded = {"moe_pad_expert_input_to_capacity": True, "moe_expert_capacity_factor": 1.5}
    mixture = ARGS | padded | {"num_experts": 4, "moe_router_topk": 1}
    assert main(["flops", "--args", model(mixture)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["component", "forward", "backward", "recompute", "padding", "share"] in lines
    forward, backward, _, padding = next(line for line in lines if line[:1] == ["moe_routed_experts"])[1:5]
    # half as many rows again in each of forward and backward
    assert 2 * as_int(padding) == as_int(forward) + as_int(backward)


def test_dropped_tokens_are_said_to_be_counted(model, capsys):
    mixture = ARGS | {"num_experts": 4, "moe_router_topk": 1, "moe_expert_capacity_factor": 1.0}
    said = "tokens that experts drop beyond their capacity are counted: how many, only the router knows"
    assert main(["flops", "--args", model(mixture)]) == 0
    assert said in capsys.readouterr().out
    assert main(["flops", "--args", model(mixture | {"moe_expert_capacity_factor": -1.0})]) == 0
    assert said not in capsys.readouterr().out


def test_hardware_flops_of_sparse_attention_are_known_where_its_core_is(model, capsys):
    latent = {
        "q_lora_rank": 8,
        "kv_lora_rank": 8,
        "qk_head_dim": 8,
        "qk_pos_emb_head_dim": 4,
        "v_head_dim": 8,
    }
    index = {"dsa_indexer_n_heads": 2, "dsa_indexer_head_dim": 8, "dsa_indexer_topk": 16}
    sparse = ARGS | latent | index | {"multi_latent_attention": True, "experimental_attention_variant": "dsa"}
    del sparse["group_query_attention"]
    for absorbed, known in ((None, False), (True, False), (False, True)):
        assert main(["flops", "--args", model(sparse | {"dsa_absorbed": absorbed}), "--json"]) == 0
        totals = json.loads(capsys.readouterr().out)["totals"]
        assert (totals["hardware_flops_causal_half"] is not None) is known
        assert totals["model_flops_causal_half"] is not None
    assert main(["flops", "--args", model(sparse)]) == 0
    assert (
        "not known: Megatron-Core since 0.19 absorbs up-projections into the core" in capsys.readouterr().out
    )


def test_a_vocabulary_that_the_file_leaves_to_a_tokenizer(model, capsys):
    without = {name: value for name, value in ARGS.items() if name not in ("vocab_size", "padded_vocab_size")}
    assert main(["flops", "--args", model(without), "--vocab-size", "300", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["parameters"] == ModelShape.from_args(without | {"padded_vocab_size": 384}).parameters


def as_int(text):
    return int(text.replace(",", ""))


def test_json_is_the_table(model, capsys):
    assert main(["flops", "--args", model(ARGS), "--batch-size", "3", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == count(ModelShape.from_args(ARGS), 3, 64).as_dict()
    assert list(printed) == [
        *("family", "batch_size", "parameters", "totals", "components", "core", "totals_by_core"),
    ]


def test_the_form_of_recurrent_cores_is_said(model, capsys):
    mamba = ARGS | {"hybrid_layer_pattern": "M" * ARGS["num_layers"], "mamba_num_groups": 1}
    for form in ("recurrent", "chunked"):
        assert main(["flops", "--args", model(mamba), "--batch-size", "1", "--core", form]) == 0
        assert f"cores of recurrent layers {form}\n" in capsys.readouterr().out
    assert main(["flops", "--args", model(ARGS), "--batch-size", "1"]) == 0
    assert "recurrent" not in capsys.readouterr().out


def test_yaml(model, capsys):
    assert main(["flops", "--args", model(YAML, "train.yaml"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    # 300 rows are padded to a multiple of 2 x 64
    assert printed["components"]["logits"]["fwd"] == 2 * (4 * 32) * 64 * 384
    assert (printed["family"], printed["batch_size"]) == ("llama", 4)


def test_hugging_face_config(model, capsys):
    assert (
        main(
            ["flops", "--args", model(HF, "config.json"), "--batch-size", "1", "--seq-length", "10", "--json"]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["components"]["logits"]["fwd"] == 2 * 10 * 64 * 100


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        (
            ARGS | {"global_batch_size": None},
            [],
            "global_batch_size is None in the file; give --batch-size N",
        ),
        (HF, ["--batch-size", "1"], "seq_length is None in the file; give --seq-length N"),
        (ARGS | {"num_layers": None}, [], "num_layers is missing"),
        (ARGS, ["--packed-seq-lens", "100,100"], "at most 2 x 64 = 128 tokens"),
        ("[1, 2]", [], "holds no arguments but list"),
        ("{", [], "is neither JSON nor yaml"),
    ],
)
def test_mistakes_are_explained(model, capsys, content, options, says):
    assert main(["flops", "--args", model(content), *options]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.out == ""


def test_broken_yaml_and_missing_files_are_explained(model, tmp_path, capsys):
    assert main(["flops", "--args", model("a: [", "broken.yaml")]) == 2
    assert main(["flops", "--args", str(tmp_path / "nowhere.json")]) == 2
    broken, nowhere = capsys.readouterr().err.splitlines()
    assert "is neither JSON nor yaml" in broken
    assert "cannot be read" in nowhere


@pytest.mark.parametrize(
    "options", [["--batch-size", "0"], ["--seq-length", "x"], ["--packed-seq-lens", "3,,4"]]
)
def test_numbers_are_checked_before_anything_is_read(options, capsys):
    with pytest.raises(SystemExit) as end:
        main(["flops", "--args", "nowhere.json", *options])
    assert end.value.code == 2
    assert "is not a whole number, 1 or more" in capsys.readouterr().err


def test_unknown_recomputation_is_said(model, capsys):
    assert (
        main(["flops", "--args", model(ARGS | {"recompute_granularity_per_stage_micro_batch": [[1, 1, 0]]})])
        == 0
    )
    out = capsys.readouterr().out
    assert "hardware FLOPs are not known" in out
    assert "hardware, causal half" not in out


@pytest.mark.parametrize("name", ["model.json", "model.yaml"])
def test_a_file_nested_without_end_is_explained(model, capsys, name):
    assert main(["flops", "--args", model("[" * 100_000, name)]) == 2
    assert "is neither JSON nor yaml (maximum recursion depth exceeded" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        '"sliding_window": "x"',
        '"sliding_window": [1]',
        '"max_position_embeddings": 1e999',
        '"recompute_modules": 1',
        '"swiglu": {}',
    ],
)
def test_a_value_of_another_kind_is_a_mistake_of_the_user(model, capsys, wrong):
    given = json.dumps(HF | {"model_type": "mistral", "global_batch_size": True, "seq_length": 8})
    assert main(["flops", "--args", model(f"{given[:-1]}, {wrong}}}")]) == 2
    assert capsys.readouterr().err.startswith(
        ("--args ", "model: ", "config.json: ", "global_batch_size is True in the file")
    )


def test_what_a_step_has_beside_tokens_comes_from_the_command_line(model, capsys):
    step = ["flops", "--args", model(QWEN_VL), "--batch-size", "2", "--seq-length", "20", "--json"]
    assert main([*step, "--image-grids", "1,4,6;2,4,4"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["components"]["vision_patch_embed"]["fwd"] == 2 * (24 + 32) * 24 * 24
    assert main([*step, "--image-grids", "none"]) == 0
    assert json.loads(capsys.readouterr().out)["components"]["vision_mlp"]["fwd"] == 0
    assert main(step) == 2
    assert "image_grids is missing" in capsys.readouterr().err


def test_a_decoders_length_comes_from_the_command_line(model, capsys):
    step = ["flops", "--args", model(T5), "--batch-size", "2", "--seq-length", "20", "--json"]
    assert main([*step, "--decoder-seq-length", "9"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["components"]["cross_core_attention"]["fwd"] == 3 * 2 * 20 * 9 * 4 * 24 * 2 // 2
    assert main(step) == 2
    assert "decoder_seq_length is missing" in capsys.readouterr().err


def test_the_defaults_of_a_yaml_are_followed_as_hydra_does(capsys):
    printed = []
    for name in ("7b", "7b_with_perf_monitor"):
        assert main(["flops", "--json", "--args", str(REPO / f"conf/train/{name}.yaml")]) == 0
        printed.append(json.loads(capsys.readouterr().out))
    assert printed[0] == printed[1]
    assert printed[0]["parameters"] == 7_296_258_048


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"a": "defaults: [bsae]", "b": "x: 1"}, "In 'a': Could not load 'bsae'"),
        ({"a": "defaults: [b]", "b": "defaults: [a]"}, "its defaults are circular; take one of them out"),
        ({"a": "defaults: base"}, "defaults must be a list"),
        ({"a": "defaults: ['${x}']"}, "Error resolving interpolation '${x}'"),
        ({"a": "defaults: [b]", "b": "["}, "b.yaml"),
        ({"a": "defaults: [b]", "b": "3"}, "Invalid loaded object type: int"),
    ],
)
def test_defaults_that_hydra_cannot_follow_are_refused(tmp_path, capsys, texts, message):
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    assert main(["flops", "--args", str(tmp_path / "a.yaml")]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"--args {tmp_path / 'a.yaml'}: ")
    assert message in printed


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("model.json", '{"num_layers": 2, "hidden_size": 64, "num_layers": 4}'),
        ("model.yaml", "num_layers: 2\nhidden_size: 64\nnum_layers: 4\n"),
        ("model.yaml", "model: {num_layers: 2, num_layers: 4}\n"),
    ],
)
def test_a_name_that_is_given_twice_is_refused(model, capsys, name, text):
    assert main(["flops", "--args", model(text, name)]) == 2
    assert "num_layers is given twice" in capsys.readouterr().err


def test_a_name_that_is_merged_and_then_given_is_given_once(model):
    text = (
        "small: &small {num_layers: 2, hidden_size: 64}\n"
        "models:\n  deep: &deep {<<: *small, num_layers: 4}\n"
        "model: {<<: *deep, hidden_size: 128}\n"
    )
    assert _parse(Path(model(text, "model.yaml")))["model"] == {"num_layers": 4, "hidden_size": 128}


def test_a_byte_order_mark_is_no_part_of_a_file(model):
    assert main(["flops", "--args", model("\ufeff" + json.dumps(ARGS))]) == 0


@pytest.mark.parametrize("has_biases", [True, False])
def test_the_megatron_core_that_is_assumed_for_routers_is_said(model, capsys, has_biases):
    assert main(["flops", "--args", model(ARGS | {"add_bias_linear": has_biases})]) == 0
    assert ("as Megatron-Core 0.16 and later have one" in capsys.readouterr().out) == has_biases
