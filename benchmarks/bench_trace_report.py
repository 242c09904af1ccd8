"""How fast queue traces are read again, in how much memory, and how fast a million samples are joined.

python benchmarks/bench_trace_report.py [--calls N]

Logs are as they come: prefixed by Ray, with functions and operations, of 8 processes in turn. Reading is in
processes of its own, with their peak of memory for a tenth of the calls and for all, each the best of three
rounds in which all take turns. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from flagscale_perf.cli.instruments import load_records
from flagscale_perf.trace.analysis.lineage import join
from flagscale_perf.trace.analysis.moves import Moves
from tests.trace_runs import MS, lines_of_call, lines_of_put, make_get, make_operation

ROUNDS = 3
LINES_PER_S, GROWTH_MB, SAMPLES_PER_S = 500_000, 16, 500_000
SAMPLES, BATCH = 1_000_000, 512
READ = """
import resource, sys, time
from pathlib import Path
from flagscale_perf.cli.instruments import load_records
from flagscale_perf.trace.analysis.source import read_traces
load_records()
begin = time.perf_counter()
found = read_traces([Path(sys.argv[1])])
took = time.perf_counter() - begin
print(found.reading.records["lines"] / took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=100_000, help="of a log that is read")
    calls = parser.parse_args().calls
    load_records()
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs"
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{machine}, load {load}, Python {platform.python_version()}; best of {ROUNDS} rounds\n")
    return 1 if reading(calls) + joining() else 0


def trace_lines(number: int) -> list[str]:
    """Of a call as Ray prints it."""
    behind = f" | timestamp=1706524200.000000 | pid={5000 + number % 8} | number={number // 8 + 1}"
    before = f"\x1b[36m(RolloutWorker pid={5000 + number % 8}, ip=10.0.0.7)\x1b[0m "
    return lines_of_call(trace_id=f"{number:032x}", before=before, behind=behind)


def bare_lines(number: int) -> list[str]:
    """Of a call as the requirement has them."""
    return lines_of_call(trace_id=f"{number:08x}")


def both_lines(number: int) -> list[str]:
    """Of a call and the put in it."""
    behind = f" | batch_size=64 | fields=4 | data_size_mb=1.000000 | pid={5000 + number % 8}"
    return trace_lines(number) + lines_of_put(f"{number:032x}", behind=behind)


KINDS: dict[str, Callable[[int], list[str]]] = {
    "TQ-TRACE lines": bare_lines,
    "TQ-TRACE lines of ours, prefixed by Ray": trace_lines,
    "TQ-TRACE and TQ-DETAIL lines, prefixed": both_lines,
}


def reading(calls: int) -> int:
    """How fast, and in how much memory; how many bars are missed."""
    missed = 0
    with tempfile.TemporaryDirectory() as directory:
        logs = {}
        for place, (name, lines) in enumerate(KINDS.items()):
            logs[name] = (Path(directory) / f"few{place}.log", Path(directory) / f"all{place}.log")
            write(logs[name][0], lines, calls // 10)
            write(logs[name][1], lines, calls)
        packed = Path(directory) / "all.log.gz"
        packed.write_bytes(gzip.compress(logs["TQ-TRACE lines"][1].read_bytes(), 1))
        logs["the first, compressed"] = (logs["TQ-TRACE lines"][0], packed)
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in logs}
        for _ in range(ROUNDS):
            for name, (few, everything) in logs.items():
                found[name].append((*read(everything), read(few)[1]))
        for name, rounds in found.items():
            speeds = sorted(speed for speed, *_ in rounds)
            growth = min(all_mb - few_mb for _, all_mb, few_mb in rounds)
            missed += bar(f"{name}, lines/s (lowest {speeds[0]:,.0f})", speeds[-1], LINES_PER_S, False)
            missed += bar(f"{name}, memory of {calls:,} calls above a tenth, MB", growth, GROWTH_MB)
    return missed


def write(path: Path, lines: Callable[[int], list[str]], calls: int) -> None:
    """The log of so many calls."""
    with path.open("w") as file:
        for number in range(calls):
            file.write("\n".join(lines(number)) + "\n")


def read(path: Path) -> tuple[float, float]:
    """Lines a second, and the peak of memory in MB."""
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    lines_per_s, peak_mb = map(float, done.stdout.split())
    return lines_per_s, peak_mb


def joining() -> int:
    """How fast samples are joined to their puts; how many bars are missed."""
    missed = 0
    for name, is_shuffled in (("ranges", False), ("shuffled indexes", True)):
        speeds = []
        for _ in range(ROUNDS):
            moves = samples(is_shuffled)
            begin = time.perf_counter()
            found = join(moves)
            speeds.append(SAMPLES / (time.perf_counter() - begin))
            assert found.joined == found.consumed == SAMPLES // BATCH * BATCH
        missed += bar(
            f"lineage of {SAMPLES:,} samples by {name}, samples/s", max(speeds), SAMPLES_PER_S, False
        )
    return missed


def samples(is_shuffled: bool) -> Moves:
    """A million samples, put and got in batches, their indexes used again and again."""
    moves, source = Moves(), random.Random(0)
    indexes = list(range(64 * BATCH))
    for number, batch in enumerate(_batches(indexes, is_shuffled, source)):
        at_ns = number * 20 * MS
        ranges = tuple((index, 1) for index in batch) if is_shuffled else ((batch[0], BATCH),)
        moves.add(make_operation(start_ns=at_ns, rows=BATCH), f"P{number % 4}", "train", ranges, 0)
        moves.add(make_get(start_ns=at_ns + 10 * MS, rows=BATCH), "C", "train", ranges, 0)
    return moves


def _batches(indexes: list[int], is_shuffled: bool, source: random.Random) -> Iterator[list[int]]:
    made = 0
    while made + BATCH <= SAMPLES:
        if is_shuffled:
            source.shuffle(indexes)
        for first in range(0, len(indexes), BATCH):
            if made + BATCH > SAMPLES:
                return
            made += BATCH
            yield indexes[first : first + BATCH]


def bar(what: str, value: float, limit: float, at_most: bool = True) -> int:
    """Prints a figure beside its bar; 1 where it is missed."""
    is_met = value <= limit if at_most else value >= limit
    sign = "<=" if at_most else ">="
    print(f"{what:<74} {value:>12,.1f}   bar {sign} {limit:>9,.6g}   {'met' if is_met else 'MISSED'}")
    return not is_met


if __name__ == "__main__":
    sys.exit(main())
