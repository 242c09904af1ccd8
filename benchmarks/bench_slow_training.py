"""Scores what our report and the rules of others say of recorded slow trainings (slow_training/README.md).

python benchmarks/bench_slow_training.py [--data DIR] [--record SEED] [--seed SEED] [--answers DIR] [ANSWER]

Every tool's answers are made anew of the recorded runs, of one seed with `--seed`. `--record` trains first,
an hour a seed; `--answers` keeps the answers as files; ANSWER is a JSON file of another tool's, to stand
beside them. Ends with 1 where our report misses a bar.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from benchmarks.slow_training import ours, rules
from benchmarks.slow_training.answers import WrongAnswer, checked, read
from benchmarks.slow_training.faults import truths_of
from benchmarks.slow_training.scorer import BARS, each_plant, score, table

DATA = Path(__file__).with_name("slow_training")
OURS = "flagscale_perf"
TOOLS = (OURS, *rules.RULES)


def answer_of(tool: str, data: Path, runs: Iterable[str]) -> dict[str, Any]:
    """What a tool says of these runs."""
    if tool == OURS:
        answers: dict[str, Any] = {run: ours.answer(ours.report_of(data / "runs" / run)) for run in runs}
    else:
        answers = {run: rules.RULES[tool](rules.read(data / "runs" / run)) for run in runs}
    return {"tool": tool, "answers": answers}


def main() -> int:
    """Prints the table, then every plant and false finding for each tool."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA, help="where runs/ and truth/ are")
    parser.add_argument("--answers", type=Path, help="keep the answers there")
    parser.add_argument("--record", metavar="SEED", type=int, help="train with the plants of this seed first")
    parser.add_argument("--only", default="*", help="names of runs to record, with * and ?")
    parser.add_argument("--seed", type=int, help="score only the runs of this seed")
    parser.add_argument("others", type=Path, nargs="*", metavar="ANSWER.json")
    options = parser.parse_args()
    if options.record is not None:
        words = [str(options.record), "--into", str(options.data), "--only", options.only]
        subprocess.run([sys.executable, str(DATA / "record.py"), *words], check=True)
    end = "" if options.seed is None else f"_s{options.seed}"
    truths = {run: truth for run, truth in truths_of(options.data / "truth").items() if run.endswith(end)}
    try:
        others = [read(path, truths) for path in options.others]
    except WrongAnswer as wrong:
        print(f"bench_slow_training.py: {wrong}", file=sys.stderr)
        return 2
    answers = [checked(answer_of(tool, options.data, truths), truths, tool) for tool in TOOLS]
    if options.answers:
        options.answers.mkdir(parents=True, exist_ok=True)
        for each in answers:
            (options.answers / f"{each['tool']}.json").write_text(json.dumps(each, indent=1) + "\n")
    scores = [score(each, truths) for each in (*answers, *others)]
    print(head("training", "benchmarks/slow_training"))
    print(table(scores, truths))
    print(each_plant(scores))
    return int("missed" in [scores[0].meets(row) for row in BARS])


if __name__ == "__main__":
    sys.exit(main())
