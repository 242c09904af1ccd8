"""docs/formulas.md, adding a model family: done as the page shows it, to a copy of the package."""

from __future__ import annotations

import json
import re

import pytest

from flagscale_perf import flops_calculator
from flagscale_perf.spine.errors import PerfError
from tests.contract.test_formulas_page import PAGE, by_hand
from tests.package_copy import PackageCopy

SECTION = PAGE[PAGE.index("## Adding a model family") :]
FUNCTION, ROW = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
CONFIG = json.loads(re.search(r"```json\n(.*?)```", SECTION, re.DOTALL)[1])
DEEPSEEK = CONFIG | {
    "model_type": "deepseek_v3",
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 6,
}


COUNT = """
import json
import sys
from flagscale_perf.flops_calculator import ModelShape, count
config, other = map(json.loads, sys.argv[1:])
table = count(ModelShape.from_hf(config), 1, 4)
forward = {name: phases["fwd"] for name, phases in table.components.items()}
print(json.dumps([table.family, forward, table.totals, ModelShape.from_hf(other).family]))
"""


def test_the_new_family_counts_what_the_page_says_and_the_others_stay_what_they_were(
    package_copy: PackageCopy,
) -> None:
    calculator = "flagscale_perf/flops_calculator.py"
    package_copy.insert(calculator, FUNCTION + "\n\n", "class Family(")
    package_copy.insert(calculator, ROW, '    Family("deepseek"')
    made = package_copy.python("-c", COUNT, json.dumps(CONFIG), json.dumps(DEEPSEEK))
    family, forward, totals, other = json.loads(made)
    assert (family, other) == ("youtu", "deepseek")

    rows = re.findall(r"^\| ([a-z_.]+) \| (.+) \| ([\d,]+) \|$", SECTION, re.MULTILINE)
    stated = {name: int(number.replace(",", "")) for name, _, number in rows}
    assert {name: by_hand(formula) for name, formula, _ in rows} == stated == forward
    sums, total = re.search(r"causal half: (.+) = ([\d,]+)\.", SECTION).groups()
    assert by_hand(sums) == int(total.replace(",", "")) == totals["model_flops_causal_half"]


def test_without_the_change_the_family_is_not_known():
    with pytest.raises(PerfError, match="'youtu'"):
        flops_calculator.ModelShape.from_hf(CONFIG)
