"""What the findings name in real FlagScale runs with planted delays: each phase and pattern, 1 and 2 ranks.

python benchmarks/bench_findings.py [RUN ...]

Without numbers of runs all of them, about a minute each. A run carries a plant of each pattern, each in
another phase; a rank that is slow has a run to itself. The first two have none.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.processes.planted_runs import PATTERNS, Plant, train

PHASES = (
    "data_loading", "forward", "backward", "exposed_grad_comm", "exposed_stat_comm", "zero_grad", "optimizer",
    "optimizer_inner_step", "forward_backward_other", "other", "between_steps",
)  # fmt: skip
OF_A_RANK = ("data_loading", "forward", "backward", "zero_grad", "optimizer", "optimizer_inner_step")
STEP = 3  # from a pattern's phase to the next one's: no phase twice in a run
TOLERANCE = 0.2


def runs() -> list[tuple[int, list[Plant]]]:
    """Ranks and plants of each run."""
    found: list[tuple[int, list[Plant]]] = [(1, []), (2, [])]
    for ranks in (1, 2):
        for first in range(len(PHASES)):
            places = [(first + STEP * number) % len(PHASES) for number in range(len(PATTERNS))]
            found.append(
                (
                    ranks,
                    [Plant(PHASES[place], pattern) for place, pattern in zip(places, PATTERNS, strict=True)],
                )
            )
    return found + [(2, [Plant(phase, "constant", rank=1)]) for phase in OF_A_RANK]


def measure(ranks: int, plants: Sequence[Plant]) -> int:
    """Trains and prints a line for each plant and each false finding; how many are wrong."""
    with tempfile.TemporaryDirectory(prefix="bench_findings_") as directory:
        outcome = train(plants, ranks, Path(directory))
    wrong = 0
    for plant in plants:
        where = f"{plant.phase:24} {plant.pattern if plant.rank is None else f'rank {plant.rank}':10}"
        if plant in outcome.missed:
            wrong += 1
            print(f"  {where} MISSED")
            continue
        gain, true_gain = outcome.gains[plant]
        is_near = abs(gain - true_gain) <= TOLERANCE * true_gain
        wrong += not is_near
        print(f"  {where} gain {gain:7.1%} of {true_gain:7.1%}{'' if is_near else '  NOT WITHIN 20 %'}")
    for title in outcome.false:
        print(f"  FALSE: {title}")
    return wrong + len(outcome.false)


def main() -> int:
    """Runs the catalogue; 1 if anything was missed, wrong or false."""
    print(f"machine  {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    catalogue = runs()
    chosen = [int(word) for word in sys.argv[1:]] or range(len(catalogue))
    wrong = 0
    for number in chosen:
        ranks, plants = catalogue[number]
        print(
            f"run {number}: {ranks} rank{'s' if ranks > 1 else ''}, {len(plants) or 'no'} plants", flush=True
        )
        wrong += measure(ranks, plants)
    print(f"wrong    {wrong}; load {os.getloadavg()[0]:.1f} at the end")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
