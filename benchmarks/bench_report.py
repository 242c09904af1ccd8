"""How long `flagscale-perf report` takes on a long run, and how much memory, each in a fresh process.

python benchmarks/bench_report.py [INTERVALS [STEPS_OF_AN_INTERVAL]]

The file is what the writer would have made: a step record for every step, an interval record for every few of
them.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.training.window import IntervalWindow
from tests.fakes import MS, SCALE, make_header, make_step

ROOT = Path(__file__).resolve().parents[1]
SUFFIX = {"text": "txt", "json": "json"}


def write_run(path: Path, intervals: int, steps: int) -> None:
    """A run of so many intervals of so many steps each."""
    header = make_header(perf_log_interval=steps)
    window = IntervalWindow(steps, Anchor(header.start_wall_ns, header.start_mono_ns), SCALE)
    start_ns = 0
    with path.open("wb") as file:
        file.write(encode(header))
        for iteration in range(1, intervals * steps + 1):
            step = make_step(
                iteration,
                start_ns=start_ns,
                iteration_ns=(100 + iteration * 7919 % 11) * MS,
                warmup=int(iteration == 1),
            )
            start_ns += step.iteration_ns
            interval = window.add(step)
            file.write(encode(step) if interval is None else encode(step) + encode(interval))


def main() -> None:
    """Measures and prints: machine, n, size, and for each format seconds, processor seconds and the greatest
    memory.
    """
    intervals = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    print(head("analysis", "training", "report"))
    with tempfile.TemporaryDirectory(prefix="bench_report_") as directory:
        path = Path(directory) / "perf_records_20240129_103000.jsonl"
        write_run(path, intervals, steps)
        print(
            f"n        {intervals} intervals, {intervals * steps} steps, {path.stat().st_size / 1e6:.0f} MB"
        )
        for name in SUFFIX:
            command = [
                sys.executable,
                "-m",
                "flagscale_perf",
                "report",
                str(path),
                "--format",
                name,
                "-o",
                f"{path}.{SUFFIX[name]}",
            ]
            before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(command, check=True, cwd=ROOT)
            wall_s, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(
                f"{name:8} {wall_s:.1f} s, {cpu_s:.1f} s of a processor, at most "
                f"{after.ru_maxrss / 1024:.0f} MiB"
            )


if __name__ == "__main__":
    main()
