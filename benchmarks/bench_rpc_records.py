"""What recording a call costs the caller, how fast sessions of many calls are read again, and in how much
memory.

python benchmarks/bench_rpc_records.py [--calls N]

Each cost is the median of rounds that take turns with an empty loop. Reading is in processes of its own, with
their peak of memory for a tenth of the calls and for all. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import zmq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from flagscale_perf.rpc.log import LogFormat
from flagscale_perf.rpc.probe import Probe
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.spine import hot
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import tuple_of
from flagscale_perf.spine.ring import Producer, Ring
from tests.rpc_sessions import REQUIREMENT_LOG, ended, make_call, make_session

BATCH, ROUNDS = 2000, 41
RECORD_US, PROBE_US, TEXT_ROWS_PER_S, RUN_ROWS_PER_S, GROWTH_MB = 1.0, 1.0, 200_000, 1_000_000, 16
READ = """
import resource, sys, time
from pathlib import Path
from flagscale_perf.cli.instruments import load_records
from flagscale_perf.rpc.analysis.instrument import read_calls
load_records()
begin = time.perf_counter()
found = read_calls(Path(sys.argv[1]))
took = time.perf_counter() - begin
print(found.overall.calls / took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


class Silent(zmq.Socket[bytes]):
    """A socket that does nothing."""

    def send(self, data: bytes) -> None: ...  # type: ignore[override]

    def recv(self) -> bytes:  # type: ignore[override]
        return b"x"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=300_000, help="of a session that is read")
    calls = parser.parse_args().calls
    built = "built" if hot.extension is not None else "not built"
    print(head("rpc", "spine"))
    print(f"n        {ROUNDS} rounds of {BATCH} calls; C extension {built}\n")
    return 1 if recording() + reading(calls) else 0


def recording() -> int:
    """What the caller's thread spends; how many bars are missed."""
    ring = Ring.create()
    context = zmq.Context()
    producer, call, socket = Producer(ring), make_call(), Silent(context, zmq.REQ)
    probe = Probe(producer.put, lambda reason: None)
    wrapped = probe.wrap(Silent(context, zmq.REQ))
    fields, now = tuple(call), time.perf_counter_ns

    def probed() -> None:
        with probe.call("Matmul"):
            wrapped.send(b"x")
            wrapped.recv()

    def bare() -> None:
        socket.send(b"x")
        socket.recv()

    def made() -> None:
        producer.put(tuple_of(CallRecord, (1, now(), *fields[2:])))

    costs = interleaved(
        {
            "nothing": lambda: None,
            "put": lambda: producer.put(call),
            "made": made,
            "bare": bare,
            "probed": probed,
        },
        lambda: ring.commit(ring.stored - ring.saved),
    )
    ring.release()
    for each in (socket, wrapped):
        each.close()
    missed = bar("a record into the ring, us", costs["put"] - costs["nothing"], RECORD_US)
    missed += bar("a record made and into the ring, us", costs["made"] - costs["nothing"], RECORD_US)
    return missed + bar(
        "a call through the probe: 5 marks, sizes, record, us", costs["probed"] - costs["bare"], PROBE_US
    )


def interleaved(arms: dict[str, Callable[[], None]], between: Callable[[], None]) -> dict[str, float]:
    """Median microseconds of a call of each."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(ROUNDS):
        for name, arm in arms.items():
            begin_ns = time.perf_counter_ns()
            for _ in range(BATCH):
                arm()
            times[name].append((time.perf_counter_ns() - begin_ns) / BATCH / 1000)
            between()
    return {name: statistics.median(found) for name, found in times.items()}


def bar(what: str, value: float, limit: float, at_most: bool = True) -> int:
    """Prints a figure beside its bar; 1 where it is missed."""
    is_met = value <= limit if at_most else value >= limit
    sign = "<=" if at_most else ">="
    print(f"{what:<56} {value:>12,.2f}   bar {sign} {limit:>9,.6g}   {'met' if is_met else 'MISSED'}")
    return not is_met


def reading(calls: int) -> int:
    """How fast, and in how much memory; how many bars are missed."""
    missed = 0
    with tempfile.TemporaryDirectory() as directory:
        sources = {
            "text log of others": (write_foreign, TEXT_ROWS_PER_S),
            "text log of ours": (write_ours, TEXT_ROWS_PER_S),
            "run file (JSON lines)": (write_run, RUN_ROWS_PER_S),
        }
        for name, (write, limit) in sources.items():
            path = Path(directory) / "perf_records_20240129_103000.jsonl"
            _, few_mb = read(write(path, calls // 10))
            rows_per_s, all_mb = read(write(path, calls))
            missed += bar(f"{name}: rows/s of {calls:,}", rows_per_s, limit, at_most=False)
            missed += bar(
                f"{name}: memory of {calls:,} above a tenth of them, MB", all_mb - few_mb, GROWTH_MB
            )
    return missed


def read(path: Path) -> tuple[float, float]:
    """Rows a second, and the peak of memory in MB."""
    command = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows_per_s, peak_mb = map(float, done.stdout.split())
    return rows_per_s, peak_mb


def write_foreign(path: Path, calls: int) -> Path:
    """A log in the requirement's own columns."""
    *heading, _, _, row = REQUIREMENT_LOG.splitlines(keepends=True)
    with path.open("w") as file:
        file.writelines(heading)
        file.writelines(f"{number:<5} {row[6:]}" for number in range(1, calls + 1))
    return path


def write_ours(path: Path, calls: int) -> Path:
    """A log in our format."""
    lines = LogFormat(make_session())
    row = lines.line(make_call())
    with path.open("w") as file:
        file.write(lines.heading())
        file.writelines(f"{number:<5} {row[6:]}" for number in range(1, calls + 1))
    return path


def write_run(path: Path, calls: int) -> Path:
    """A run file."""
    row = encode(make_call(7)).split(b'"number":7', 1)
    with path.open("wb") as file:
        file.write(encode(make_session()))
        file.writelines(row[0] + b'"number":%d' % number + row[1] for number in range(1, calls + 1))
        file.write(encode(ended(calls=calls)))
    return path


if __name__ == "__main__":
    sys.exit(main())
