"""How fast queue traces are read again, in how much memory, and how fast a million samples are joined.

python benchmarks/bench_trace_report.py [--calls N]

Logs are as they come: bare, prefixed and coloured by Ray, sampled, compressed; with functions and operations
of 8 processes in turn, hardly two of which took the same time. Reading is in processes of its own: what
reading alone takes, and what the whole program takes with its start, with their peak of memory for a tenth of
the calls and for all. Each is the best of three rounds in which all take turns; a start that reads nothing is
an arm of its own. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import gzip
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from flagscale_perf.cli.instruments import load_records
from flagscale_perf.trace.analysis.lineage import join
from flagscale_perf.trace.analysis.transfers import Transfers, What
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
print(found.reading.records["lines"], took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


class Read(NamedTuple):
    """A process that read a log: lines, seconds of reading and of the whole process, peak of memory."""

    lines: int
    reading_s: float
    whole_s: float
    peak_mb: float


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=100_000, help="of a log that is read")
    calls = parser.parse_args().calls
    load_records()
    print(head("trace/analysis", "analysis"))
    print(f"n        best of {ROUNDS} rounds\n")
    return 1 if reading(calls) + joining() else 0


def times_of(number: int) -> tuple[float, float, float]:
    """Of a call's stages, in milliseconds."""
    return 52.0 + number % 977 / 100, 800.0 + number % 7919 / 10, 62.0 + number % 1009 / 1000


def trace_lines(number: int, weight: str = "") -> list[str]:
    """Of a call as Ray prints it."""
    behind = f" | timestamp=1706524200.000000 | pid={5000 + number % 8} | number={number // 8 + 1}{weight}"
    before = f"\x1b[36m(RolloutWorker pid={5000 + number % 8}, ip=10.0.0.7)\x1b[0m "
    return lines_of_call(trace_id=f"{number:032x}", times_ms=times_of(number), before=before, behind=behind)


def sampled_lines(number: int) -> list[str]:
    """The same, every tenth call."""
    return trace_lines(number, " | weight=10")


def bare_lines(number: int) -> list[str]:
    """Of a call as the requirement has them."""
    return lines_of_call(trace_id=f"{number:08x}", times_ms=times_of(number))


def detail_lines(number: int) -> list[str]:
    """Of four puts of three sizes."""
    before = f"\x1b[36m(RolloutWorker pid={5000 + number % 8}, ip=10.0.0.7)\x1b[0m "
    found = []
    for place in range(4):
        mib = (0.25, 1.0, 4.0)[(number + place) % 3]
        sizes = f" | batch_size=64 | fields=4 | data_size_mb={mib:.6f}"
        own = 4 * (number // 8) + place + 1
        behind = f" | timestamp=1706524200.000000 | pid={5000 + number % 8} | number={own} | partition=train"
        took_ms = 4.0 + (number + place) % 997 / 100
        found += lines_of_put(f"{number:032x}", took_ms, 1000 * mib / took_ms, before, behind, sizes)
    return found


def both_lines(number: int) -> list[str]:
    """Of a call and a put in it."""
    return trace_lines(number) + detail_lines(number)[:2]


KINDS: dict[str, Callable[[int], list[str]]] = {
    "TQ-TRACE, bare": bare_lines,
    "TQ-TRACE, prefixed by Ray": trace_lines,
    "TQ-TRACE, prefixed, sampled": sampled_lines,
    "TQ-DETAIL, prefixed": detail_lines,
    "TQ-TRACE and -DETAIL, prefixed": both_lines,
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
        packed, empty = Path(directory) / "all.log.gz", Path(directory) / "empty.log"
        packed.write_bytes(gzip.compress(logs["TQ-TRACE, bare"][1].read_bytes(), 1))
        logs["the first, compressed"] = (logs["TQ-TRACE, bare"][0], packed)
        empty.touch()
        found: dict[str, list[tuple[Read, Read]]] = {name: [] for name in logs}
        starts = []
        for _ in range(ROUNDS):
            starts.append(read(empty).whole_s)
            for name, (few, everything) in logs.items():
                found[name].append((read(everything), read(few)))
        print(f"start without a line: {1000 * min(starts):.0f} ms (slowest {1000 * max(starts):.0f} ms)\n")
        for name, rounds in found.items():
            missed += shown(name, rounds)
    print()
    return missed


def shown(name: str, rounds: list[tuple[Read, Read]]) -> int:
    """Prints what was found of a kind of log; how many bars are missed."""
    alone = sorted(each.lines / each.reading_s for each, _ in rounds)
    whole = sorted(each.lines / each.whole_s for each, _ in rounds)
    few_mb, all_mb = (min(pair[place].peak_mb for pair in rounds) for place in (1, 0))
    count = rounds[0][0].lines
    missed = bar(f"{name}: reading, lines/s (lowest {alone[0]:,.0f})", alone[-1], LINES_PER_S, False)
    missed += bar(
        f"  with the start, {count:,} lines (lowest {whole[0]:,.0f})", whole[-1], LINES_PER_S, False
    )
    return missed + bar(
        f"  memory, {few_mb:.0f} MB for a tenth, {all_mb:.0f} MB for all: MB more", all_mb - few_mb, GROWTH_MB
    )


def write(path: Path, lines: Callable[[int], list[str]], calls: int) -> None:
    """The log of so many calls."""
    with path.open("w") as file:
        for number in range(calls):
            file.write("\n".join(lines(number)) + "\n")


def read(path: Path) -> Read:
    """In a process of its own."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    whole_s = time.perf_counter() - begin
    lines, reading_s, peak_mb = done.stdout.split()
    return Read(int(lines), float(reading_s), whole_s, float(peak_mb))


def joining() -> int:
    """How fast samples are joined to their puts; how many bars are missed."""
    missed = 0
    for name, is_shuffled in (("ranges", False), ("shuffled indexes", True)):
        speeds = []
        for _ in range(ROUNDS):
            transfers = samples(is_shuffled)
            begin = time.perf_counter()
            found = join(transfers)
            speeds.append(SAMPLES / (time.perf_counter() - begin))
            assert found.joined == found.consumed == SAMPLES // BATCH * BATCH
        missed += bar(
            f"lineage of {SAMPLES:,} samples by {name}, samples/s", max(speeds), SAMPLES_PER_S, False
        )
    return missed


def samples(is_shuffled: bool) -> Transfers:
    """A million samples, put and got in batches, their indexes used again and again."""
    transfers, source = Transfers(), random.Random(0)
    indexes = list(range(64 * BATCH))
    for number, batch in enumerate(_batches(indexes, is_shuffled, source)):
        at_ns = number * 20 * MS
        ranges = tuple((index, 1) for index in batch) if is_shuffled else ((batch[0], BATCH),)
        transfers.add(make_operation(start_ns=at_ns, rows=BATCH), f"P{number % 4}", What("train", ranges))
        transfers.add(make_get(start_ns=at_ns + 10 * MS, rows=BATCH), "C", What("train", ranges))
    return transfers


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
