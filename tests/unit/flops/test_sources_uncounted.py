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


def test_rwkv_is_known_by_its_tokenizer() -> None:
    with pytest.raises(PerfError, match="tokenizer_type is 'RWKVTokenizer'; RWKV's time mixing cannot"):
        refuse_uncounted(Arguments({"tokenizer_type": "RWKVTokenizer"}))
