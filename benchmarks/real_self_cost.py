"""What real runs of FlagScale report of the monitor itself, with its C extension and in plain Python.

    python benchmarks/real_self_cost.py DIRECTORY [ROUNDS]

A tiny model, on the CPU; the arms take turns, so that all of them meet the same machine. Prints the median
microseconds a step (`self_ns` of the steps after the first ten) of each run.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from flagscale_perf.spine.hot import PLAIN_VARIABLE
from tests.processes import flagscale as fs

ITERATIONS, WARMUP = 60, 10
OPTIONS = {"": [], " with phases": ["--perf-breakdown", "--perf-max-overhead", "5"]}


def main() -> None:
    """Trains, and prints a line for each arm."""
    directory = Path(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    print(head("spine", "training/recording", "hooks.py", "perf_metrics.py", "perf_logger.py"))
    print(f"n        {rounds} runs an arm, {ITERATIONS - WARMUP} steps each")
    print(f"{'us a step, by the run itself':42} {'median':>7} {'of a step':>10}  runs")
    found: dict[str, list[tuple[float, float]]] = {}
    for number in range(rounds):
        for phases, options in OPTIONS.items():
            for way, plain in (("", ""), (", plain Python", "1")):
                run = directory / f"{number}{phases}{way}".replace(" ", "_")
                found.setdefault(f"flagscale_perf{phases}{way}", []).append(_train(run, options, plain))
    for arm, runs in found.items():
        own_us, step_us = (statistics.median(each) for each in zip(*runs, strict=True))
        every = ", ".join(f"{own:.0f}" for own, _ in runs)
        print(f"{arm:42} {own_us:7.0f} {100 * own_us / step_us:8.3f} %  {every}")


def _train(directory: Path, options: list[str], plain: str) -> tuple[float, float]:
    """Median microseconds of a step: the monitor's, and all of it."""
    directory.mkdir(parents=True)
    script = fs.launched(fs.train_gpt(), *fs.TINY, "--train-iters", str(ITERATIONS))
    command = fs.torchrun(1, *script, "--enable-perf-monitor", "--perf-log-dir", "perf", *options)
    finished = fs.run(command, directory, **{PLAIN_VARIABLE: plain})
    if finished.returncode:
        raise SystemExit(finished.output[-3000:])
    (file,) = directory.glob("perf/perf_records_*.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    steps = [row for row in rows if row["kind"] == "step" and row["iteration"] > WARMUP]
    return (
        statistics.median(row["self_ns"] / 1e3 for row in steps),
        statistics.median(row["iteration_ns"] / 1e3 for row in steps),
    )


if __name__ == "__main__":
    main()
