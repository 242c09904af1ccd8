"""Scores what tools say of the recorded runs against what was planted in them. Needs Python only.

python scorer.py [--truth DIRECTORY] [--each] ANSWER.json ...

README.md beside this file has the form of an answer, and what each row of the table means.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.slow_training.answers import COSTS, WrongAnswer, read
from benchmarks.slow_training.faults import NEAR_OF_STEP, Fault, faults_of, is_standing, truths_of

NEAR = 0.2  # of the true cost, or NEAR_OF_STEP, whichever is more; of shares, too
FIRST, TWO, RANK = "rank and phase first", "rank and phase among the first two", "rank first"
PRICED, PRICED_IF = "cost right, where the truth is known well", "cost right, as far as the truth is known"
HELD, WIDTH = "interval holds the true cost", "width of the interval, of the cost"
CAUSE, SHARE = "cause right, where one is named", "share of more work right, where given"
FALSE, WRONG = "healthy runs in which something is named", "undecidable runs in which a wrong rank is named"
ABSTAINED = "runs without an answer"
ROWS = (FIRST, TWO, RANK, PRICED, PRICED_IF, HELD, WIDTH, CAUSE, SHARE, FALSE, WRONG, ABSTAINED)
BARS = {FIRST: (0.9, "of all"), PRICED: (0.9, "of all"), CAUSE: (0.95, "of those named"), FALSE: (0.0, "")}


@dataclass
class Score:
    """What a tool got right: for each row of the table, of each case that counts whether it is right."""

    tool: str
    rows: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    kinds: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    widths: list[float] = field(default_factory=list)
    each: list[str] = field(default_factory=list)
    missing: Counter[str] = field(
        default_factory=Counter
    )  # cases of runs without an answer: they meet no bar

    def cell(self, row: str) -> str:
        """As the table shows it."""
        if row == WIDTH:
            return f"{statistics.median(self.widths):.0%}" if self.widths else "-"
        cases = self.rows[row]
        return f"{sum(cases)}/{len(cases)}" if cases else "-"

    def meets(self, row: str) -> str:
        """Whether a bar is met; "-" where nothing is there to be judged."""
        share, of = BARS[row]
        count = len(self.rows[row]) + (self.missing[row] if of == "of all" else 0)
        right = sum(self.rows[row])
        is_met = right <= share * count if row == FALSE else right >= share * count
        return "-" if not count else "met" if is_met else "missed"


def score(answer: dict[str, Any], truths: dict[str, dict[str, Any]]) -> Score:
    """Of one tool, over all runs. An answer's form is checked first (`WrongAnswer`)."""
    made = Score(answer["tool"])
    for run, truth in sorted(truths.items()):
        found, faults = answer["answers"][run], faults_of(run, truth)
        made.rows[ABSTAINED].append(isinstance(found, dict))
        if isinstance(found, dict):
            unsaid = Score("")
            for fault in faults if truth["decidable"] else ():
                judge(unsaid, fault, [], len(faults))
            made.missing.update({row: len(cases) for row, cases in unsaid.rows.items()})
            made.each.append(f"{run}: no answer; {found['reason']}")
        elif truth["healthy"]:
            made.rows[FALSE].append(bool(found))
            made.each += [f"{run}: healthy; {heard(found)}"] if found else []
        else:
            costly = [each for each in found if not is_standing(each, truth)]
            for fault in faults if truth["decidable"] else ():
                judge(made, fault, costly, len(faults))
            if not truth["decidable"]:
                ranks = [None, *(fault.rank for fault in faults)]
                made.rows[WRONG].append(any(each.get("rank") not in ranks for each in costly))
                made.each.append(f"{run}: undecidable, {truth['note']}; {heard(found)}")
    return made


def judge(made: Score, fault: Fault, found: list[dict[str, Any]], count: int) -> None:
    """Adds what was said of one fault. With several in a run, each may come first of them."""
    hits = [fault.has(each) for each in found]
    named = [each for each, is_hit in zip(found, hits, strict=True) if is_hit]
    if not fault.is_small:
        made.rows[FIRST].append(any(hits[:count]))
        made.rows[TWO].append(any(hits[: count + 1]))
        made.kinds[fault.truth["kind"]].append(any(hits[:count]))
        if fault.rank is not None:
            made.rows[RANK].append(fault.rank in [each.get("rank") for each in found[:count]])
    cost = judge_cost(made, fault, named)
    for each in named:
        part = fault.part(each.get("phase")) or {"cause": "work", "work_share": 1.0}
        if each.get("cause") is not None:
            made.rows[CAUSE].append(each["cause"] == part["cause"])
        if each.get("work_share") is not None:
            made.rows[SHARE].append(abs(each["work_share"] - part["work_share"]) <= NEAR)
    mark = "small" if fault.is_small else "first" if any(hits[:count]) else "later" if named else "missed"
    made.each.append(
        f"{fault.run}: rank {'?' if fault.rank is None else fault.rank} {' + '.join(fault.parts)}, "
        f"{fault.cost_ms:.1f} +- {fault.within_ms:.1f} of {fault.truth['step_ms']:.0f} ms; "
        f"{mark}, cost {cost}; {heard(found)}"
    )


def judge_cost(made: Score, fault: Fault, named: list[dict[str, Any]]) -> str:
    """Adds whether the cost is right, which all findings of a fault have together, and says so."""
    least_ms, cost_ms, most_ms = (total(named, name) for name in COSTS)
    limit_ms = max(NEAR * abs(fault.cost_ms), NEAR_OF_STEP * fault.truth["step_ms"])
    off_ms = math.inf if cost_ms is None else abs(cost_ms - fault.cost_ms)
    if fault.within_ms <= limit_ms:
        made.rows[PRICED].append(off_ms <= limit_ms)
    made.rows[PRICED_IF].append(off_ms <= limit_ms + fault.within_ms)
    if named and least_ms is not None and most_ms is not None:
        below_ms, above_ms = least_ms - fault.within_ms, most_ms + fault.within_ms
        made.rows[HELD].append(below_ms <= fault.cost_ms <= above_ms)
        made.widths.append((most_ms - least_ms) / abs(fault.cost_ms or math.inf))
    unsure = fault.within_ms > limit_ms and off_ms <= limit_ms + fault.within_ms
    return "not known" if unsure else "right" if off_ms <= limit_ms else "wrong"


def total(named: list[dict[str, Any]], name: str) -> float | None:
    """Of all findings of a fault; 0 where there are none, None where one does not say."""
    values: list[Any] = [each.get(name) for each in named]
    return None if None in values else sum(values)


def heard(found: list[dict[str, Any]]) -> str:
    """The first findings in a few words."""
    texts = []
    for each in found[:3]:
        rank, cost_ms = each.get("rank"), each.get("cost_ms")
        cost = "" if cost_ms is None else f"{cost_ms:.1f} ms"
        words = ["no rank" if rank is None else f"rank {rank}", each.get("phase"), cost, each.get("cause")]
        texts.append(" ".join(filter(None, words)))
    return ", ".join(texts) or "nothing"


def table(scores: list[Score], truths: dict[str, dict[str, Any]]) -> str:
    """Every row for all tools, then the bars, then which kinds of plants came first."""
    faults = [
        fault.is_small
        for run, truth in truths.items()
        for fault in faults_of(run, truth) if truth["decidable"]
    ]  # fmt: skip
    healthy = sum(truth["healthy"] for truth in truths.values())
    head = f"{faults.count(False)} to be named, {faults.count(True)} small, {healthy} healthy runs"
    lines = [[head, *(each.tool for each in scores)]]
    lines += [[row, *(each.cell(row) for each in scores)] for row in ROWS]
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
