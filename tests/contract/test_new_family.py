"""docs/formulas.md, adding a model family: done as the page shows it, to a copy of the package."""

from __future__ import annotations

import json
import re

import pytest

from flagscale_perf import flops_calculator
from flagscale_perf.spine.errors import PerfError
from tests.contract.test_formulas_page import REPO, by_hand
from tests.package_copy import PackageCopy

PAGE = (REPO / "docs/formulas.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## Adding a model family") :]
FAMILY, BLOCK, ROW = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
CONFIG, ARGS = map(json.loads, re.findall(r"```json\n(.*?)```", SECTION, re.DOTALL))
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
config, other, args = map(json.loads, sys.argv[1:])
made = []
for shape in (ModelShape.from_hf(config), ModelShape.from_hf(other), ModelShape.from_args(args)):
    table = count(shape, 1, 4)
    forward = {name: parts["fwd"] for name, parts in table.components.items()}
    made.append([table.family, forward, table.totals])
print(json.dumps(made))
"""


def test_the_new_family_and_block_count_what_the_page_says_and_the_others_stay_what_they_were(
    package_copy: PackageCopy,
) -> None:
    package_copy.insert("flagscale_perf/flops_calculator.py", FAMILY, '    Family("deepseek"')
    blocks = "flagscale_perf/flops/families/__init__.py"
    package_copy.create("flagscale_perf/flops/families/retention.py", BLOCK)
    package_copy.insert(blocks, ROW, '    "mixture": mixture,')
    line = "from flagscale_perf.flops.families.retention import retention\n"
    package_copy.insert(blocks, line, "from flagscale_perf.flops.tape import")
    made = package_copy.python("-c", COUNT, *map(json.dumps, (CONFIG, DEEPSEEK, ARGS)))
    youtu, deepseek, retention = json.loads(made)
    assert (youtu[0], deepseek[0], retention[0]) == ("youtu", "deepseek", "llama")

    tables = [
        re.findall(r"^\| ([a-z0-9_.]+) \| (.+) \| ([\d,]+) \|$", part, re.MULTILINE)
        for part in SECTION.split("And of")
    ]
    for rows, (_, forward, _) in zip(tables, (youtu, retention), strict=True):
        stated = {name: int(number.replace(",", "")) for name, _, number in rows}
        assert {name: by_hand(formula) for name, formula, _ in rows} == stated == forward
    sums, total = re.search(r"causal half: (.+) = ([\d,]+)\.", SECTION).groups()
    assert by_hand(sums) == int(total.replace(",", "")) == youtu[2]["model_flops_causal_half"]


def test_without_the_change_the_family_is_not_known():
    with pytest.raises(PerfError, match="'youtu'"):
        flops_calculator.ModelShape.from_hf(CONFIG)
