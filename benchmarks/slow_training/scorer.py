"""Scores what tools say of the recorded runs against what was planted in them. Needs Python only.

python scorer.py [--truth DIRECTORY] [--each] ANSWER.json ...

README.md beside this file has the form of an answer, and what each row of the table means.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.slow_training.answers import WrongAnswer, read

NEAR, NEAR_OF_STEP = 0.2, 0.02  # of the true cost, or of a step: a cost that is as near is right
WAITS = ("exposed_grad_comm", "exposed_param_comm", "exposed_stat_comm", "pipeline_recv_wait")
FIRST, TWO, RANK = "rank and phase first", "rank and phase among the first two", "rank first"
PRICED, PRICED_IF = "cost right", "cost right, as far as the truth is known"
HELD, WIDTH = "interval holds the true cost", "width of the interval, of the cost"
CAUSE, FALSE = "cause right, where one is named", "healthy runs in which something is named"
WRONG, ABSTAINED = "undecidable runs in which a wrong rank is named", "runs without an answer"
BARS = {FIRST: (0.9, "of all"), PRICED: (0.9, "of all"), CAUSE: (0.95, "of those named"), FALSE: (0.0, "")}


@dataclass
class Score:
    """What a tool got right: for each row of the table, of each case that counts whether it is right."""

    tool: str
    rows: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    kinds: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    widths: list[float] = field(default_factory=list)
    each: list[str] = field(default_factory=list)
    missing: int = 0  # decidable plants in runs without an answer: they meet no bar

    def cell(self, row: str) -> str:
        """As the table shows it."""
        if row == WIDTH:
            return f"{statistics.median(self.widths):.0%}" if self.widths else "-"
        cases = self.rows[row]
        return f"{sum(cases)}/{len(cases)}" if cases else "-"

    def meets(self, row: str) -> str:
        """Whether a bar is met; "-" where nothing is there to be judged."""
        share, of = BARS[row]
        count = len(self.rows[row]) + (self.missing if of == "of all" else 0)
        right = sum(self.rows[row])
        is_met = right <= share * count if row == FALSE else right >= share * count
        return "-" if not count else "met" if is_met else "missed"


def score(answer: dict[str, Any], truths: dict[str, dict[str, Any]]) -> Score:
    """Of one tool, over all runs. An answer's form is checked first (`WrongAnswer`)."""
    made = Score(answer["tool"])
    for run, truth in sorted(truths.items()):
        found = answer["answers"][run]
        is_open = isinstance(found, dict)
        made.rows[ABSTAINED].append(is_open)
        if is_open:
            made.missing += len(truth["plants"]) if truth["decidable"] else 0
        elif truth["healthy"]:
            made.rows[FALSE].append(bool(found))
            made.each += [f"{run}: healthy; {said(each)}" for each in found]
        elif not truth["decidable"]:
            ranks = [None, *(plant["rank"] for plant in truth["plants"])]
            made.rows[WRONG].append(any(each.get("rank") not in ranks for each in found))
        else:
            for plant in truth["plants"]:
                judge(made, run, truth, plant, found)
    return made


def judge(made: Score, run: str, truth: dict[str, Any], plant: dict[str, Any], found: list[Any]) -> None:
    """Adds what was said of one plant. With several in a run, each may come first of them."""
    count = len(truth["plants"])
    true_ms, within_ms = plant["cost_ms"], plant["within_ms"]
    hits = [names(each, plant) and in_phase(each, plant) for each in found]
    made.rows[FIRST].append(any(hits[:count]))
    made.rows[TWO].append(any(hits[: count + 1]))
    if plant["rank"] is not None:
        made.rows[RANK].append(any(names(each, plant) for each in found[:count]))
    made.kinds[truth["kind"]].append(any(hits[:count]))
    named = found[hits.index(True)] if any(hits[: count + 1]) else {"cost_ms": 0.0}
    cost_ms, limit_ms = named.get("cost_ms"), max(NEAR * abs(true_ms), NEAR_OF_STEP * truth["step_ms"])
    off_ms = math.inf if cost_ms is None else abs(cost_ms - true_ms)
    made.rows[PRICED].append(off_ms <= limit_ms)
    made.rows[PRICED_IF].append(off_ms <= limit_ms + within_ms)
    if (least_ms := named.get("cost_least_ms")) is not None:
        most_ms = named["cost_most_ms"]
        made.rows[HELD].append(least_ms - within_ms <= true_ms <= most_ms + within_ms)
        made.widths.append((most_ms - least_ms) / max(abs(true_ms), 1e-9))
    if named.get("cause") is not None:
        made.rows[CAUSE].append(named["cause"] == plant["cause"])
    mark = "first" if any(hits[:count]) else "second" if any(hits[: count + 1]) else "missed"
    first = ", ".join(map(said, found[: count + 1])) or "nothing"
    where = f"{true_ms:.1f} +- {within_ms:.1f} ms, rank {plant['rank']} {plant['phase']}"
    made.each.append(f"{run}: {where}; {mark}, cost {'right' if off_ms <= limit_ms else 'wrong'}; {first}")


def names(each: dict[str, Any], plant: dict[str, Any]) -> bool:
    """Whether the rank is right. Inside a wait it cannot be told from marks: no rank is right, too."""
    rank = each.get("rank")
    return bool(rank == plant["rank"] or (rank is None and plant["phase"] in WAITS))


def in_phase(each: dict[str, Any], plant: dict[str, Any]) -> bool:
    """Whether the phase is right; "optimizer" is, for all parts of it."""
    phase = each.get("phase")
    return bool(phase == plant["phase"] or (phase == "optimizer" and plant["phase"].startswith(phase)))


def said(each: dict[str, Any]) -> str:
    """A finding in a few words."""
    rank, cost_ms = each.get("rank"), each.get("cost_ms")
    cost = "" if cost_ms is None else f"{cost_ms:.1f} ms"
    words = ["no rank" if rank is None else f"rank {rank}", each.get("phase") or "", cost]
    return " ".join(filter(None, [*words, each.get("cause") or ""]))


def table(scores: list[Score], truths: dict[str, dict[str, Any]]) -> str:
    """Every row for all tools, then the bars, then which kinds of plants came first."""
    plants = [plant for truth in truths.values() if truth["decidable"] for plant in truth["plants"]]
    healthy = sum(truth["healthy"] for truth in truths.values())
    rows = [FIRST, TWO, RANK, PRICED, PRICED_IF, HELD, WIDTH, CAUSE, FALSE, WRONG, ABSTAINED]
    lines = [[f"{len(plants)} decidable plants, {healthy} healthy runs", *(each.tool for each in scores)]]
    lines += [[row, *(each.cell(row) for each in scores)] for row in rows]
    lines += [[], ["bars"]]
    for row, (share, of) in BARS.items():
        bar = f"{row}: {'none' if row == FALSE else f'{share:.0%} {of}'}"
        lines.append([bar, *(each.meets(row) for each in scores)])
    lines += [[], [f"{FIRST}, by kind"]]
    for name in sorted({name for each in scores for name in each.kinds}):
        counts = [f"{sum(each.kinds[name])}/{len(each.kinds[name])}" for each in scores]
        lines.append([name, *counts])
    width = max(len(line[0]) for line in lines if line)
    return "\n".join(
        "".join([f"{line[0]:{width}}", *(f"  {cell:>14}" for cell in line[1:])]).rstrip() if line else ""
        for line in lines
    )


def each_plant(scores: list[Score]) -> str:
    """What each tool said of every plant, and what it named in healthy runs."""
    return "\n".join(f"\n{each.tool}\n" + "\n".join(each.each) for each in scores)


def truths_of(directory: Path) -> dict[str, dict[str, Any]]:
    """Of every run, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))}


def main() -> int:
    """Prints the table; 2 where an answer cannot be scored."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--truth", type=Path, default=Path(__file__).with_name("truth"))
    parser.add_argument("--each", action="store_true", help="every plant and false finding, too")
    parser.add_argument("answers", type=Path, nargs="+", metavar="ANSWER.json")
    options = parser.parse_args()
    truths = truths_of(options.truth)
    try:
        answers = [read(path, truths) for path in options.answers]
    except WrongAnswer as wrong:
        print(f"scorer.py: {wrong}", file=sys.stderr)
        return 2
    scores = [score(answer, truths) for answer in answers]
    print(table(scores, truths))
    if options.each:
        print(each_plant(scores))
    return 0


if __name__ == "__main__":
    sys.exit(main())
