"""Whether real runs of FlagScale that become slower within themselves are found, and healthy ones beside busy
neighbours are not called so.

python benchmarks/slowdowns_real.py DIRECTORY [ROUNDS]

Seven rounds (ROUNDS), each of three healthy runs of a tiny model and one with sleeps in forward from the
middle on, of three sizes in turn: ten minutes, or an hour beside busy neighbours. Every other run is under
`nice`. The truth is the host's own line of each iteration. Runs that are there already are not made again.
"""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from flagscale_perf.analysis.job import open_session
from flagscale_perf.training.analysis.fold import read_report
from tests.processes import flagscale as fs
from tests.processes import slowed_parts

STEPS, MICROBATCHES = 320, 2  # of `fs.SMALL`
SIZES = (0.04, 0.1, 0.2)
MONITOR = ["--enable-perf-monitor", "--perf-breakdown", "--perf-log-dir", "perf"]


def times_of(directory: Path) -> tuple[float, float, float]:
    """By the host's clock: median milliseconds of both halves, without the first tenth of the run, and the
    deviation of a step, a share, from the quartiles of the first.
    """
    times = [one.elapsed_ms for one in fs.Finished(0, (directory / "output").read_text()).logged]
    first, second = times[STEPS // 10 : STEPS // 2], times[STEPS // 2 :]
    low, middle, high = statistics.quantiles(first)
    return middle, statistics.median(second), (high - low) / 1.349 / middle


def train(directory: Path, place: int, sleep_s: float) -> None:
    """One run; every other one gives way to its neighbours."""
    if (directory / "output").exists():
        return
    directory.mkdir(parents=True)
    plants = f"forward:{sleep_s / MICROBATCHES:.6f}:calls {STEPS // 2 + 1}-{STEPS}" if sleep_s else ""
    words = [slowed_parts.__file__, plants, fs.train_gpt(), *fs.SMALL, "--train-iters", STEPS, *MONITOR]
    polite = ["nice", "-n", "10"] if place % 2 else []
    finished = fs.run([*polite, *fs.torchrun(1, *fs.launched(*map(str, words)))], directory)
    if finished.returncode:
        raise SystemExit(finished.output[-3000:])
    (directory / "load").write_text(f"{os.getloadavg()[0]:.1f}")
    (directory / "output").write_text(finished.output)


def told(directory: Path) -> list[str]:
    """What the report says of the run's course and of the host."""
    report = read_report(open_session(directory / "perf"))
    found = [one for one in report.findings if one.name in ("slowdown", "growing_phase")]
    host = [one.title for one in report.findings if one.name.startswith("host_")]
    lines = [f"found: {one.title}; {one.causes[0]}" for one in found] + [f"beside: {each}" for each in host]
    live = (directory / "perf" / "perf_realtime.log").read_text().splitlines()
    lines += [f"live: {line.partition('slow: ')[2]}" for line in live if "slow: " in line]
    return lines + [f"not judged: {one}" for one in report.unjudged if one.startswith("the steps' course")]


def main() -> int:
    """Trains and prints a line for each run, and what its report says below."""
    directory, rounds = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 7
    print(head("training/analysis/findings", "spine/shift.py", "training/slowdown.py"))
    print(
        f"runs     {STEPS} steps each\n\n{'planted':>8}{'load':>7}{'ms, then':>18}{'changed':>9}{'noise':>8}"
    )
    usual: list[float] = []
    for place in range(4 * rounds):
        size = 0.0 if place % 4 < 3 else SIZES[place // 4 % 3]
        run = directory / f"run_{place}"
        train(run, place, size * statistics.median(usual) / 1000 if size else 0.0)
        first, second, noise = times_of(run)
        usual += [] if size else [first]
        times, change = f"{first:.1f}, {second:.1f}", 100 * (second / first - 1)
        load = (run / "load").read_text()
        print(f"{100 * size:6.0f} %{load:>7}{times:>18}{change:7.1f} %{100 * noise:6.1f} %", flush=True)
        for line in told(run):
            print(f"         {line}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
