"""What the findings name in real FlagScale runs with planted delays: each phase and pattern, 1 and 2 ranks.

python benchmarks/bench_findings.py [--keep DIR] [RUN ...]

Without numbers of runs all of them, about a minute each. A run carries a plant of each pattern, each in
another phase; a rank that is slow has a run to itself. The first two have none. Runs kept in DIR are not
trained again: the findings of this code are compared with what was planted in them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from tests.processes.planted_runs import Outcome, Plant, is_near, outcome_of, runs, train


def outcome(ranks: int, plants: Sequence[Plant], directory: Path) -> Outcome:
    """Of the run kept in that directory, or of one trained there."""
    if (directory / "perf").exists():
        return outcome_of(plants, directory)
    directory.mkdir(parents=True)
    return train(plants, ranks, directory)


def show(outcome: Outcome, plants: Sequence[Plant]) -> int:
    """Prints a line for each plant and each false finding; how many are wrong."""
    wrong = 0
    for plant in plants:
        where = f"{plant.phase:24} {plant.pattern if plant.rank is None else f'rank {plant.rank}':10}"
        if plant in outcome.missed:
            wrong += 1
            print(f"  {where} MISSED")
            continue
        gain, true_gain = outcome.gains[plant]
        near = is_near(gain, true_gain)
        wrong += not near
        print(f"  {where} gain {gain:7.1%} of {true_gain:7.1%}{'' if near else '  NOT WITHIN 20 %'}")
    for title in outcome.false:
        print(f"  FALSE: {title}")
    return wrong + len(outcome.false)


def main() -> int:
    """Runs the catalogue; 1 if anything was missed, wrong or false."""
    print(head("training", "analysis"))
    catalogue = runs()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs there, or judge those kept")
    parser.add_argument("runs", nargs="*", type=int, metavar="RUN", help=f"0 to {len(catalogue) - 1}")
    words = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="bench_findings_") as temporary:
        for number in words.runs or range(len(catalogue)):
            ranks, plants = catalogue[number]
            what = f"{ranks} rank{'s' if ranks > 1 else ''}, {len(plants) or 'no'} plants"
            print(f"run {number}: {what}", flush=True)
            directory = (words.keep or Path(temporary)) / str(number)
            wrong += show(outcome(ranks, plants, directory), plants)
    print(f"wrong    {wrong}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
