"""docs/formulas.md, adding a model family: done as the page shows it, to a copy of the one source file."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from flagscale_perf import flops_calculator
from flagscale_perf.spine.errors import PerfError
from tests.contract.test_formulas_page import PAGE, by_hand

SECTION = PAGE[PAGE.index("## Adding a model family") :]
FUNCTION, ROW = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
CONFIG = json.loads(re.search(r"```json\n(.*?)```", SECTION, re.DOTALL)[1])
DEEPSEEK = CONFIG | {
    "model_type": "deepseek_v3",
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 6,
}


@pytest.fixture
def changed(tmp_path, monkeypatch):
    """The calculator with the page's function above `Family` and its row above DeepSeek's."""
    source = Path(flops_calculator.__file__).read_text(encoding="utf-8")
    for marker, text in (("class Family(", FUNCTION + "\n\n"), ('    Family("deepseek"', ROW)):
        assert source.count(marker) == 1
        source = source.replace(marker, text + marker)
    path = tmp_path / "changed_calculator.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return module


def test_the_new_family_counts_what_the_page_says(changed):
    table = changed.count(changed.ModelShape.from_hf(CONFIG), 1, 4)
    rows = re.findall(r"^\| ([a-z_.]+) \| (.+) \| ([\d,]+) \|$", SECTION, re.MULTILINE)
    stated = {name: int(number.replace(",", "")) for name, _, number in rows}
    assert table.family == "youtu"
    assert {name: by_hand(formula) for name, formula, _ in rows} == stated
    assert {name: phases["fwd"] for name, phases in table.components.items()} == stated
    sums, total = re.search(r"causal half: (.+) = ([\d,]+)\.", SECTION).groups()
    assert by_hand(sums) == int(total.replace(",", "")) == table.totals["model_flops_causal_half"]


def test_the_other_families_stay_what_they_were(changed):
    assert changed.ModelShape.from_hf(DEEPSEEK).family == "deepseek"


def test_without_the_change_the_family_is_not_known():
    with pytest.raises(PerfError, match="'youtu'"):
        flops_calculator.ModelShape.from_hf(CONFIG)
