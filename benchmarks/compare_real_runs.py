"""How often `flagscale-perf compare` errs on real runs of FlagScale on this machine: A/A pairs, and a planted
slowdown.

python benchmarks/compare_real_runs.py DIRECTORY [ROUNDS]

Each round trains three times, one after the other (about a minute and a half): a tiny model as it is, the
same with sleeps in forward and backward that take most of the step, and that with 5 % of the step more in the
backward. Runs that are in the directory already are not made again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from flagscale_perf.analysis.compare.compare import CompareOptions
from flagscale_perf.analysis.compare.judge import UNDECIDED
from flagscale_perf.spine.averages import deviation, mean, median
from flagscale_perf.training.analysis import compare as of_trainings
from tests.compared import of_paths
from tests.processes import flagscale as fs
from tests.processes import padded_stages

MICROBATCHES = 2  # of `fs.TINY`
FORWARD_S, BACKWARD_S = 0.16, 0.32  # of sleep for a micro-batch; the model itself takes some 0.04 s of a step
PLANTED_S = 0.05  # in a step of some 1 s
PLAIN, PADDED, SLOWER = "plain", "padded", "slower"
ITERATIONS = {PLAIN: 80, PADDED: 36, SLOWER: 36}
SIDE = 3  # runs of a side where several are compared
Runs = dict[str, list[Path]]


class Rate(NamedTuple):
    """Of so many comparisons: how many found a difference, how many named a phase, how many named the
    backward first.
    """

    comparisons: int
    different: int
    named: int
    backward_first: int
    visible: float


def main() -> None:
    """Trains, compares and prints the rates."""
    directory = Path(sys.argv[1])
    runs = _train_all(directory, int(sys.argv[2]) if len(sys.argv) > 2 else 7)
    print(head("analysis/compare", "training/analysis"))
    for kind, files in runs.items():
        middles = [_median_ms(file) for file in files]
        spread = 100 * deviation(middles) / mean(middles)
        print(
            f"{kind:8} {len(files)} runs, medians {min(middles):.1f} to {max(middles):.1f} ms, "
            f"standard deviation {spread:.2f} %"
        )
    print(f"{'':34}{'n':>5}{'different':>11}{'phase named':>13}{'backward first':>16}{'visible':>9}")
    for label, rate in _rates(runs):
        visible = f"{100 * rate.visible:.1f} %"
        print(
            f"{label:34}{rate.comparisons:5}{rate.different:11}{rate.named:13}{rate.backward_first:16}{visible:>9}"
        )


def _rates(runs: Runs) -> list[tuple[str, Rate]]:
    low = CompareOptions(noise=0.01)
    singles = {kind: [((a,), (b,)) for a, b in combinations(files, 2)] for kind, files in runs.items()}
    planted = [((a,), (b,)) for a in runs[PADDED] for b in runs[SLOWER]]
    return [
        ("A/A plain, 1 and 1 run", _rate(singles[PLAIN], CompareOptions())),
        (f"A/A plain, {SIDE} and {SIDE} runs", _rate(_splits(runs[PLAIN]), CompareOptions())),
        ("A/A padded, 1 and 1 run", _rate(singles[PADDED], CompareOptions())),
        ("A/A padded, 1 and 1, --noise 1%", _rate(singles[PADDED], low)),
        (f"A/A padded, {SIDE} and {SIDE} runs", _rate(_splits(runs[PADDED]), CompareOptions())),
        ("planted 5 %, 1 and 1, --noise 1%", _rate(planted, low)),
        (f"planted 5 %, {SIDE} and {SIDE} runs", _rate(_alternating(runs), CompareOptions())),
    ]


def _splits(files: Sequence[Path]) -> list[tuple[Sequence[Path], Sequence[Path]]]:
    """Every way to make two sides of the first runs."""
    chosen = files[: 2 * SIDE]
    sides = [side for side in combinations(chosen, SIDE) if chosen[0] in side]
    return [(side, [file for file in chosen if file not in side]) for side in sides]


def _alternating(runs: Runs) -> list[tuple[Sequence[Path], Sequence[Path]]]:
    return [
        ([runs[PADDED][place] for place in places], [runs[SLOWER][place] for place in places])
        for places in combinations(range(len(runs[PADDED])), SIDE)
    ]


def _rate(pairs: Sequence[tuple[Sequence[Path], Sequence[Path]]], options: CompareOptions) -> Rate:
    found = [of_paths(of_trainings.compare)(base, new, options) for base, new in pairs]
    different = sum(one.whole.verdict != UNDECIDED for one in found)
    named = sum(any(row.verdict != UNDECIDED for row in one.phases) for one in found)
    slower = [one for one in found if (one.whole.change or 0.0) > 0]
    backward_first = sum(one.culprits[:1] == ["backward"] for one in slower)
    visible = median([((one.whole.share_high or 0.0) - (one.whole.share_low or 0.0)) / 2 for one in found])
    return Rate(len(found), different, named, backward_first, visible)


def _train_all(directory: Path, rounds: int) -> Runs:
    runs: Runs = {PLAIN: [], PADDED: [], SLOWER: []}
    for number in range(rounds):
        for kind, files in runs.items():
            files.append(_train(directory / f"{kind}_{number}", kind))
    return runs


def _train(directory: Path, kind: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    if not list(directory.glob("perf/perf_summary_*.json")):
        script = [fs.train_gpt()] if kind == PLAIN else [padded_stages.__file__, fs.train_gpt()]
        options = [
            "--enable-perf-monitor",
            "--perf-breakdown",
            "--perf-max-overhead",
            5,
            "--perf-log-dir",
            "perf",
        ]
        command = [*script, *fs.TINY, "--train-iters", ITERATIONS[kind], *options]
        seconds = BACKWARD_S + (PLANTED_S / MICROBATCHES if kind == SLOWER else 0)
        pads = {"PADDED_FORWARD_S": str(FORWARD_S), "PADDED_BACKWARD_S": str(seconds)}
        finished = fs.run(fs.torchrun(1, *fs.launched(*map(str, command))), directory, **pads)
        if finished.returncode:
            raise SystemExit(finished.output[-3000:])
    (file,) = directory.glob("perf/perf_records_*.jsonl")
    return file


def _median_ms(file: Path) -> float:
    steps = [
        row
        for row in map(json.loads, file.read_text().splitlines())
        if row["kind"] == "step" and row["iteration"] > 10
    ]
    return median([row["iteration_ns"] / 1e6 for row in steps])


if __name__ == "__main__":
    main()
