"""From what size on a planted delay is named with phase and pattern, its gain right to 20 %.

python benchmarks/detection_limits.py

Planted by computation into the two recorded FlagScale runs of tests/recorded_noise: some minutes. Sizes are
in parts of a usual step of the recording.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from tests.recorded import PATTERNS, RUNS, finding_of, noise, plant, usual_step_ns

SIZES = (0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0)
TOLERANCE = 0.2


def smallest(is_found: Callable[[float], bool]) -> str:
    """The size from which on every one of SIZES is found."""
    least = None
    for size in reversed(SIZES):
        if not is_found(size):
            break
        least = size
    return "-" if least is None else f"{least:g}"


def limits_of(run: str, phase: str, pattern: str) -> tuple[str, str]:
    """From what size on it is named, and with a gain that is right to 20 %."""
    ratios: dict[float, float | None] = {}

    def ratio_at(size: float) -> float | None:
        if size not in ratios:
            planted = plant(run, phase, pattern, size * usual_step_ns(run))
            found = finding_of(planted, phase, pattern)
            ratios[size] = None if found is None else (found.gain or 0.0) / planted.true_gain
        return ratios[size]

    def is_right(size: float) -> bool:
        ratio = ratio_at(size)
        return ratio is not None and abs(ratio - 1) <= TOLERANCE

    return smallest(lambda size: ratio_at(size) is not None), smallest(is_right)


def main() -> int:
    """Prints a table for each pattern."""
    print(head("training"))
    print(f"sizes    {SIZES}")
    for pattern in PATTERNS:
        print(f"\n{pattern:26} {'one rank':>20} {'two ranks':>20}")
        print(f"{'phase':26} {'named':>10} {'to 20 %':>9} {'named':>10} {'to 20 %':>9}")
        for name in noise(RUNS[0])[0]:
            phase = name.removesuffix("_ns")
            limits = [limits_of(run, phase, pattern) for run in RUNS]
            print(f"{phase:26}" + "".join(f" {named:>10} {right:>9}" for named, right in limits), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
