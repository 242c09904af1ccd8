"""Every worked example of worked_flops.md computes what it says, by hand and by the calculator."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from flagscale_perf.flops_calculator import FAMILIES, ModelShape, count

REPO = Path(__file__).parents[2]
PAGE = Path(__file__).with_name("worked_flops.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))


def by_hand(text):
    """The value of sums and products of whole numbers: all there is in the page's middle columns."""
    expression = text.replace(" x ", "*").replace(",", "").replace(" ", "")
    assert re.fullmatch(r"[\d*+/()-]+", expression), text
    return arithmetic(expression)


def arithmetic(expression):
    while "(" in expression:
        expression = re.sub(r"\(([^()]+)\)", lambda group: str(arithmetic(group[1])), expression)
    total = 0
    for sign, term in re.findall(r"([+-]?)([^+-]+)", expression):
        value, *rest = re.findall(r"[*/]?\d+", term)
        product = int(value)
        for factor in rest:
            product = product * int(factor[1:]) if factor[0] == "*" else product // int(factor[1:])
        total += -product if sign == "-" else product
    return total


def test_every_family_has_an_example():
    assert set(EXAMPLES) == {family.name for family in FAMILIES}


@pytest.mark.parametrize("family", EXAMPLES)
def test_the_example(family):
    text = EXAMPLES[family]
    args = json.loads(re.search(r"```json\n(.*?)```", text, re.DOTALL)[1])
    shape = ModelShape.from_hf(args) if "model_type" in args else ModelShape.from_args(args)
    table = count(shape, args["global_batch_size"], args["seq_length"])
    rows = re.findall(r"^\| ([a-z0-9_.]+) \| (.+) \| ([\d,]+) \|$", text, re.MULTILINE)
    stated = {name: int(number.replace(",", "")) for name, _, number in rows}
    assert table.family == family
    assert {name: by_hand(formula) for name, formula, _ in rows} == stated
    assert {name: phases["fwd"] for name, phases in table.components.items()} == stated
    sums, total = re.search(r"causal half: (.+) = ([\d,]+)$", text, re.MULTILINE).groups()
    assert by_hand(sums) == int(total.replace(",", "")) == table.totals["model_flops_causal_half"]
