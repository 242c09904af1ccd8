"""Which blocks layers are made of."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.hybrid import LETTERS, mtp_depths, named_blocks, pattern_of, variant_blocks
from flagscale_perf.flops_calculator import ModelShape
from flagscale_perf.spine.errors import PerfError

MODEL = {"hidden_size": 8, "num_attention_heads": 2, "padded_vocab_size": 16}
USUAL = (("attention", "mlp"),) * 4


def letters(**given: object) -> str:
    pattern = pattern_of(Arguments(given))
    assert pattern is not None
    names = {block: letter for letter, block in LETTERS.items()}
    return "".join(names[layer[0]] for layer in pattern.layers)


def test_blocks_by_their_names() -> None:
    assert named_blocks(Arguments({}), 2) == ()
    named = Arguments({"layer_blocks": [["attention", "mlp"], ["mixture"]]})
    assert named_blocks(named, 2) == (("attention", "mlp"), ("mixture",))


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("attention", "layer_blocks is 'attention'; write a list"),
        ([["attention"]], "layer_blocks describes 1 layers, num_layers is 2; make them agree"),
        ([["attention"], ["hyena"]], "layer_blocks has 'hyena'; write some of attention, latent_attention"),
    ],
)
def test_blocks_that_cannot_be(named: object, says: str) -> None:
    with pytest.raises(PerfError, match=says):
        named_blocks(Arguments({"layer_blocks": named}), 2)


def test_patterns_in_megatrons_letters() -> None:
    assert pattern_of(Arguments({"num_layers": 2})) is None
    assert letters(hybrid_layer_pattern="M-M*|ME", num_layers=6) == "M-M*ME"
    assert letters(hybrid_override_pattern="M*", is_hybrid_model=True) == "M*"
    further = Arguments({"hybrid_layer_pattern": "MM/*-/*-"})
    assert pattern_of(further) == ((("mamba",), ("mamba",)), ("attention", "mlp"))
    assert mtp_depths(further) == 2
    older = Arguments(
        {"hybrid_override_pattern": "M", "mtp_hybrid_override_pattern": "*E", "mtp_num_layers": 1}
    )
    assert (pattern_of(older) or ())[1] == ("attention", "mixture")


def test_ratios_as_megatron_places_them() -> None:
    # what Megatron's own allocate_layers says of these
    assert letters(num_layers=9, hybrid_attention_ratio=1 / 3, hybrid_mlp_ratio=1 / 3) == "M-*M*-M*-"
    assert letters(num_layers=8, hybrid_attention_ratio=0.25) == "MM*MM*MM"
    assert letters(num_layers=8, hybrid_attention_ratio="0.125", hybrid_mlp_ratio=0.5) == "M-M-*-M-"
    # pretrain_mamba.py without any of them
    assert (
        letters(num_layers=3, spec=["megatron.core.models.mamba.mamba_layer_specs", "mamba_stack_spec"])
        == "MMM"
    )


def test_a_spec_says_what_m_stands_for() -> None:
    product = {"hybrid_layer_pattern": "M*/M", "spec": "hybrid_layer_specs gdp_stack_spec"}
    assert pattern_of(Arguments(product)) == ((("gdp",), ("attention",)), ("gdp",))
    alone = pattern_of(Arguments({"num_layers": 2, "spec": ["a", "gated_delta_product_stack_spec"]}))
    assert alone == ((("gdp",), ("gdp",)), ())
    assert pattern_of(Arguments({"num_layers": 2, "spec": ["local"]})) is None
    for spec in (["my.layers", "spec"], "megatron.core.models.gpt.gpt_layer_specs mamba"):
        with pytest.raises(PerfError, match="spec is .*, and what its layers multiply is unknown"):
            pattern_of(Arguments({"num_layers": 2, "spec": spec}))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"hybrid_layer_pattern": "M*", "num_layers": 3}, "has 2 layers, num_layers is 3; make them agree"),
        (
            {"hybrid_layer_pattern": "M", "hybrid_override_pattern": "M"},
            "hybrid_layer_pattern and hybrid_override_pattern are both given",
        ),
        ({"hybrid_layer_pattern": "MX"}, r"has the letter 'X'; write some of M \(mamba\), G \(gdn\), \*"),
        (
            {"hybrid_layer_pattern": "M/*", "mtp_num_layers": 2},
            "has 1 depths behind '/', mtp_num_layers is 2",
        ),
        ({"hybrid_layer_pattern": "M/*/-"}, r"depths of different layers \(\*, -\)"),
        ({"hybrid_layer_pattern": "M/*", "mtp_hybrid_override_pattern": "*"}, "drop one"),
        (
            {"hybrid_layer_pattern": "M*", "hybrid_attention_ratio": 0.5},
            "hybrid_attention_ratio are both given",
        ),
        ({"num_layers": 4, "hybrid_attention_ratio": 0.5, "hybrid_mlp_ratio": 0.75}, "more than 1 together"),
        ({"num_layers": 4, "hybrid_attention_ratio": 1.5}, "give a share from 0 to 1"),
        ({"num_layers": 4, "is_hybrid_model": True}, "is_hybrid_model is set, but no hybrid_layer_pattern"),
        ({"hybrid_layer_pattern": "|"}, "has no layers; write a letter for each"),
    ],
)
def test_patterns_that_cannot_be(given: dict[str, object], says: str) -> None:
    with pytest.raises(PerfError, match=says):
        pattern_of(Arguments(given))


def test_an_experimental_attention_takes_its_layers() -> None:
    def first(**given: object) -> list[str]:
        return [layer[0] for layer in variant_blocks(Arguments(given), USUAL)]

    assert first() == []
    gdn = {"experimental_attention_variant": "gated_delta_net"}
    assert first(**gdn, linear_attention_freq=4) == ["gdn", "gdn", "gdn", "attention"]
    assert first(**gdn, linear_attention_freq="[0]+[1]*3") == ["attention", "gdn", "gdn", "gdn"]
    assert first(experimental_attention_variant="dsv4_hybrid") == ["compressed_attention"] * 4
    assert first(experimental_attention_variant="dsa") == ["sparse_attention"] * 4


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"linear_attention_freq": 4}, "linear_attention_freq is 4, but no experimental_attention_variant"),
        ({"experimental_attention_variant": "hyena"}, "is 'hyena'; counted are gated_delta_net, gdn"),
        ({"experimental_attention_variant": "gdn"}, "but linear_attention_freq is missing"),
        (
            {"experimental_attention_variant": "gdn", "linear_attention_freq": [1, 0]},
            "linear_attention_freq describes 2 layers, and the model has 4",
        ),
    ],
)
def test_variants_that_cannot_be(given: dict[str, object], says: str) -> None:
    with pytest.raises(PerfError, match=says):
        variant_blocks(Arguments(given), USUAL)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"hybrid_layer_pattern": "ME"}, r"layers of experts \(E\), but num_experts is missing"),
        (
            {"hybrid_layer_pattern": "M+"},
            r"latent attention \(\+ or D\), but multi_latent_attention is not set",
        ),
        ({"hybrid_layer_pattern": "M", "mtp_num_layers": 1}, "not what a depth is made of"),
        ({"hybrid_layer_pattern": "G"}, "linear_num_key_heads is missing"),
    ],
)
def test_patterns_that_lack_something(given: dict[str, object], says: str) -> None:
    with pytest.raises(PerfError, match=says):
        ModelShape.from_args(MODEL | given)


def test_depths_are_layers_and_as_many_at_most() -> None:
    with pytest.raises(PerfError, match="mtp_num_layers is 1000000000; give at most"):
        mtp_depths(Arguments({"mtp_num_layers": 10**9}))
