"""FLOPs and weights of operators, from shapes that a reader can multiply."""

from __future__ import annotations

import pytest

from flagscale_perf.profile.formulas import FORMULAS


@pytest.mark.parametrize(
    ("name", "arguments", "flops", "hidden"),
    [
        # 3 tokens of 5 numbers to 4: three times four sums of five products; the weight is behind a number
        ("_C::onednn_mm", ([3, 4], [3, 5], [], []), 2 * 3 * 4 * 5, 4 * 5),
        # the weight, packed, is an argument
        ("_C::weight_packed_linear", ([3, 4], [3, 5], [4, 5], [], []), 2 * 3 * 4 * 5, None),
        # one pair of a query and a key, in 4 heads of 8 numbers, with 2 heads of keys and values
        (
            "vllm::unified_attention_with_output",
            ([3, 4, 8], [3, 2, 8], [3, 2, 8], [3, 4, 8], "layer"),
            4 * (2 * 8 + 2 * 8),
            None,
        ),
    ],
)
def test_formula(name: str, arguments: tuple[list[int], ...], flops: int, hidden: int | None) -> None:
    formula = FORMULAS[name]
    assert formula.flops(*arguments) == flops
    assert (None if formula.hidden is None else formula.hidden(*arguments)) == hidden
