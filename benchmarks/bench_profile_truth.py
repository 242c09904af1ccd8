"""What a profile says of communication, beside what was planted: stragglers, links, bubbles.

python benchmarks/bench_profile_truth.py [--steps N]

Real ranks on this machine, over gloo, whose computing is sleep. Stragglers of 5, 20 and 80 ms before
all-reduces of 16 MB: the waiting by when the ranks say that they came (bar 5 % of the delay), and the time of
the transfer by when the second rank came and the first one was done (bar 15 %). Pipelines of 2 and 4 stages,
1F1B, 1 to 16 microbatches: the bubble by when the ranks say that they sent and began to receive, the median
over the steps; and, in the shortest step, by what the planted passes make it, and on the first stage by
(p - 1) / (m + p - 1), both of which other programs on this machine make wrong (bar 10 % each).
Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.provenance import head  # noqa: E402
from tests.planted_waits import Pipeline, pipelines, stragglers  # noqa: E402

WAIT_BAR, SPEED_BAR, BUBBLE_BAR = 0.05, 0.15, 0.10
MICROBATCHES = (1, 2, 4, 8, 16)
PIPELINES = {
    "2 stages alike": [(10, 20)] * 2,
    "2 stages, the last takes twice as long": [(10, 20), (20, 40)],
    "4 stages alike": [(10, 20)] * 4,
    "4 stages, the third takes twice as long": [(10, 20), (10, 20), (20, 40), (10, 20)],
}


def barred(value: float, bar: float) -> tuple[str, bool]:
    """The figure with its verdict, and whether the bar is missed."""
    return f"{100 * value:6.2f} %{'' if value <= bar else ' MISSED'}", value > bar


def show_stragglers(directory: Path) -> int:
    """The table; how many bars are missed."""
    print("\nstraggler, all-reduce of 16 MB")
    print(
        f"  {'planted':>8} {'it came later by':>17} {'measured wait':>14} {'error':>9}   {'transfer':>9}"
        f" {'measured':>9} {'error':>9}   {'bus GB/s':>8}   {'one rank alone':>14}"
    )
    missed = 0
    for each in stragglers(directory):
        off, is_off = barred(each.error, WAIT_BAR) if each.planted_ms else ("", False)
        wrong, is_wrong = barred(each.transfer_error, SPEED_BAR)
        missed += is_off + is_wrong
        later, waited, took, measured = (
            median(values) / 1e6 for values in (each.truth_ns, each.wait_ns, each.took_ns, each.transfer_ns)
        )
        print(
            f"  {each.planted_ms:5} ms {later:14.2f} ms {waited:11.2f} ms {off:>9}   {took:6.2f} ms"
            f" {measured:6.2f} ms {wrong:>9}   {median(each.busbw):8.2f}"
            f"   {median(each.naive):9.2f} GB/s"
        )
    return missed


def show_pipeline(name: str, made: Sequence[Pipeline]) -> int:
    """The table; how many bars are missed."""
    print(f"\npipeline, {name}")
    print(
        f"  {'stage':>5} {'m':>3} {'bubble':>10} {'by the ranks':>13} {'by what was planted':>20}"
        f" {'of the step':>12} {'(p-1)/(m+p-1)':>14}"
    )
    missed = 0
    for each in made:
        error, is_off = barred(each.error, BUBBLE_BAR)
        planted, is_wrong = barred(each.planted_error, BUBBLE_BAR)
        missed += is_off + is_wrong
        ideal, bubble = "", median(each.bubble_ns) / 1e6
        if "alike" in name and each.stage == 0 and each.ideal:
            off, is_other = barred(abs(each.share / each.ideal - 1), BUBBLE_BAR)
            ideal, missed = f"{100 * each.ideal:5.1f} %, off by {off.strip()}", missed + is_other
        print(
            f"  {each.stage:5} {each.microbatches:3} {bubble:7.2f} ms {error:>13} {planted:>20}"
            f" {100 * each.share:10.1f} % {ideal:>14}"
        )
    return missed


def main() -> int:
    """Prints everything; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=9, help="of each pipeline and number of microbatches")
    args = parser.parse_args()
    print(head("profile"))
    print(f"n        {args.steps} steps of each pipeline")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        missed = show_stragglers(directory / "stragglers")
        for number, (what, times) in enumerate(PIPELINES.items()):
            missed += show_pipeline(what, pipelines(directory / str(number), times, MICROBATCHES, args.steps))
    print(f"\nmissed bars: {missed or 'none'}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
