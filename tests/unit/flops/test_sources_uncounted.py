"""Options that nothing here counts."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.sources import UNCOUNTED, refuse_uncounted
from flagscale_perf.flops_calculator import ModelShape
from flagscale_perf.spine.errors import PerfError
from tests.unit.flops.families.walks import SIZES


@pytest.mark.parametrize("name", UNCOUNTED)
def test_each_is_refused_by_its_name_and_value(name: str) -> None:
    with pytest.raises(
        PerfError, match=rf"model: {name} is 'yes'; {UNCOUNTED[name][:8]}.* cannot be counted"
    ):
        ModelShape.from_args(SIZES | {name: "yes"})


@pytest.mark.parametrize("value", [None, False, 0, "", "false", "0", "None", [], "[]"])
def test_what_is_off_is_not_refused(value: object) -> None:
    refuse_uncounted(Arguments(dict.fromkeys(UNCOUNTED, value)))


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("tokenizer_type", "RWKVTokenizer", "RWKV's time mixing"),
        ("tokenizer_type", "BertWordPieceLowerCase", r"an encoder \(BERT, T5\)"),
        ("model_family", "t5", "an encoder"),
    ],
)
def test_other_kinds_of_models_are_known_by_what_these_say(name: str, value: str, what: str) -> None:
    with pytest.raises(PerfError, match=f"{name} is '{value}'; {what} cannot be counted"):
        ModelShape.from_args(SIZES | {name: value})
