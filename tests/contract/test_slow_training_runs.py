"""What our report and other tools' rules say of the recorded slow trainings is what the kept table says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from benchmarks.bench_slow_training import DATA, TOOLS, answer_of
from benchmarks.slow_training.answers import checked
from benchmarks.slow_training.faults import truths_of
from benchmarks.slow_training.scorer import ABSTAINED, FALSE, WRONG, score, table
from tests.conftest import REPO
from tests.contract.test_slow_training import SCORER, TABLE

RESULT = REPO / "benchmarks/results/slow_training_2_cores_x86_64.txt"


def counts(text: str) -> dict[str, list[str]]:
    """Cells of a printed table by row: of our report, then of the other tools."""
    rows = [re.split(r"  +", line) for line in text.splitlines() if re.search(r"  +\d+/\d+$|  +-$", line)]
    return {row[0]: row[1:] for row in rows}


def worse(kept: dict[str, list[str]], made: dict[str, list[str]]) -> list[str]:
    """What is not as in the kept table: our report may be better, the others' rules are what they are."""
    found = [f"{row} is new or gone" for row in kept.keys() ^ made.keys()]
    for row in kept.keys() & made.keys():
        before, now = kept[row], made[row]
        found += [
            f"{row}: {cells}" for cells in zip(before[1:], now[1:], strict=True) if cells[0] != cells[1]
        ]
        if "/" in before[0] and not is_as_good(row, before[0], now[0]):
            found.append(f"{row}: ours was {before[0]}, is {now[0]}")
    return sorted(found)


def is_as_good(row: str, before: str, now: str) -> bool:
    """By how many are right; where a row counts mistakes, fewer are better."""
    old, new = (int(cell.partition("/")[0].strip("-") or 0) for cell in (before, now))
    return new <= old if row in (FALSE, WRONG, ABSTAINED) else new >= old


def test_the_recorded_runs_give_the_table_that_is_kept() -> None:
    truths = truths_of(DATA / "truth")
    scores = [score(checked(answer_of(tool, DATA, truths), truths, tool), truths) for tool in TOOLS]
    assert len(truths) >= 50
    assert worse(counts(RESULT.read_text()), counts(table(scores, truths))) == []


def test_a_table_that_differs_is_noticed() -> None:
    kept = counts(TABLE)
    better = counts(TABLE.replace("1/2               -", "2/2               -"))
    poorer = counts(TABLE.replace("7/7             1/4", "6/7             1/4", 1))
    other = counts(TABLE.replace("0/10            2/10", "1/10            1/10"))
    assert worse(kept, kept) == worse(kept, better) == []
    assert worse(kept, poorer) == ["rank and phase among the first two: ours was 7/7, is 6/7"]
    assert worse(kept, other) == [
        "runs without an answer: ('2/10', '1/10')",
        "runs without an answer: ours was 0/10, is 1/10",
    ]


def test_the_example_of_the_page_is_a_tool(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (DATA / "README.md").read_text(), re.DOTALL)
    (tmp_path / "runs").symlink_to(DATA / "runs")
    subprocess.run([sys.executable, "-c", example], cwd=tmp_path, check=True)
    done = subprocess.run(
        [sys.executable, SCORER, "answer.json"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert re.search(r"^rank and phase first +\d+/\d+$", done.stdout, re.MULTILINE)
