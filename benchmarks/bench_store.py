"""What a second look costs: reports, the page, a table, a list of runs and logs, beside a build without a
store; what is kept of every rank, and whether recording has become dearer.

python benchmarks/bench_store.py [--steps N] [--sessions N] [--calls N] [--ranks N] [--than COMMIT]

Both builds read the same files, one after the other, each in a process of its own; this one a first time,
from the files alone, and a second one. The default is a tenth of the goals' sizes, as `--steps 10000000`
takes an hour. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench_trace_report import trace_lines
from benchmarks.provenance import REPO, head
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.jsonl import dump, encode
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import PhaseJoin
from flagscale_perf.training.ranks.blocks import block_steps, encode_block
from flagscale_perf.training.ranks.kept import KeptBlocks, kept_bytes
from flagscale_perf.training.window import IntervalWindow
from tests import rpc_sessions
from tests.fakes import MS, SCALE, make_header, make_phases, make_step
from tests.rank_simulator import PER_NODE, Job, Noise, Simulation

BEFORE = "e1cc0ee9"
STEPS_OF_AN_INTERVAL, STEPS_OF_A_SESSION = 10, 1000
NAME = "perf_records_{}.jsonl"
PEAK_MIB = 400
PAGE_MB = 3
BYTES_A_RANK = 100  # and step, on disk
ROUNDS, BLOCKS = 3, 4  # of recording; of every rank, of fifty steps each
TABLE = "import sys; from flagscale_perf import open_run; print(len(open_run(sys.argv[1]).steps()))"
# Microseconds of a processor that a step costs the training thread, and the writer.
RECORDING = """
import resource, sys, tempfile, time
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.perf_logger import PerfLogger
from tests.fakes import make_facts, make_step
config = PerfConfig(enable_perf_monitor=True, perf_log_dir=tempfile.mkdtemp(dir=sys.argv[1]))
logger, steps, thread_ns = PerfLogger.start(config, make_facts(), print), 50_000, 0
for begin in range(0, steps, 5000):  # the writer keeps up, as with steps of a training
    records = [make_step(begin + number, model_flops=3 * 10**20) for number in range(5000)]
    start_ns = time.thread_time_ns()
    for record in records:
        logger.step(record)
    thread_ns += time.thread_time_ns() - start_ns
    time.sleep(0.3)
logger.close("completed", timeout_s=30)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(thread_ns / 1000 / steps, (used.ru_utime + used.ru_stime) * 1e6 / steps)
"""


class Took(NamedTuple):
    """A process: seconds, seconds of a processor, MiB at most."""

    wall_s: float
    cpu_s: float
    peak_mib: float


class Case(NamedTuple):
    """What is asked of both builds, and the bars of this one's second time: as a share of the other's, and
    in seconds; `first`: of its first time as such a share, 0 for none.
    """

    name: str
    words: Sequence[str]
    share: float
    bar_s: float
    first: float = 0


def write_run(path: Path, steps: int, start_s: int = 0) -> None:
    """A training with phases, an interval every ten steps, and its end."""
    header = make_header(perf_log_interval=STEPS_OF_AN_INTERVAL)
    header = replace(
        header,
        session_id=path.stem.removeprefix("perf_records_"),
        start_wall_ns=header.start_wall_ns + start_s * 10**9,
    )
    window = IntervalWindow(STEPS_OF_AN_INTERVAL, Anchor(header.start_wall_ns, header.start_mono_ns), SCALE)
    join, start_ns = PhaseJoin(RunFacts.of(header.facts)), 0
    with path.open("wb") as file:
        file.write(encode(header))
        for number in range(1, steps + 1):
            took_ns = (100 + number * 7919 % 11) * MS
            step = make_step(number, start_ns=start_ns, iteration_ns=took_ns, warmup=int(number == 1))
            phases = make_phases(number)
            join.hold(phases)
            interval = window.add(step, 0, join.take(step))
            file.write(encode(phases) + encode(step) + (b"" if interval is None else encode(interval)))
            start_ns += took_ns
        file.write(encode(RunEnd("completed", header.start_wall_ns + start_ns, 0, 0)))


def write_all(directory: Path, steps: int, sessions: int, calls: int) -> list[Case]:
    """The files, and what is asked of them."""
    run, runs, log, rpc = (directory / name for name in ("run", "runs", "log", "rpc"))
    for each in (run, runs, log, rpc):
        each.mkdir()
    write_run(run / NAME.format("20240129_103000"), steps)
    for number in range(sessions):
        session = f"20240129_{number // 3600:02}{number // 60 % 60:02}{number % 60:02}"
        (runs / str(number)).mkdir()
        write_run(runs / str(number) / NAME.format(session), STEPS_OF_A_SESSION, number)
    with (log / "worker-1.out").open("w") as file:
        for number in range(calls):
            file.write("\n".join(trace_lines(number)) + "\n")
    rpc_sessions.write_run(rpc, [rpc_sessions.make_call(number) for number in range(1, calls + 1)])
    lines = sum(1 for _ in (log / "worker-1.out").open())
    return [
        Case(f"report, {steps:,} steps", ["report", str(run), "--format", "text"], 0.03, 2, 0.35),
        Case("its page", ["report", str(run), "--format", "html"], 1, 3),
        Case("its steps, a DataFrame", ["-c", TABLE, str(run)], 0.02, 60),
        Case(f"runs, {sessions:,} sessions", ["runs", str(runs), "--format", "text"], 0.05, 1),
        Case(f"trace log, {lines:,} lines", ["report", str(log), "--format", "text"], 1, lines / 1e6),
        Case(f"calls, {calls:,}", ["report", str(rpc), "--format", "text"], 1, calls / 1e6),
    ]


def run(words: Sequence[str], build: Path, output: Path) -> Took:
    """One command of a build."""
    command = [sys.executable, "-m", "flagscale_perf", *words, "-o", str(output)]
    if words[0] == "-c":
        command = [sys.executable, *words]
    begin = time.perf_counter()
    with output.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=build,
            env=os.environ | {"PYTHONPATH": str(build)},
            stdout=file if words[0] == "-c" else None,
            stderr=subprocess.DEVNULL,
        )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    return Took(time.perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def measure(case: Case, directory: Path, before: Path) -> bool:
    """Prints a row of the table; whether a bar is missed."""
    for found in directory.glob("*/cache"):
        shutil.rmtree(found)
    suffix = "html" if case.words[-1] == "html" else "txt"
    outputs = [directory / f"{number}.{suffix}" for number in range(3)]
    builds = (before, REPO, REPO)
    old, first, second = (run(case.words, *each) for each in zip(builds, outputs, strict=True))
    was, one, two = (output.read_bytes() for output in outputs)
    same = "NO" if one != two else "all three" if was == one else "both of this build"
    shares, peak_mib = (
        (first.cpu_s / old.cpu_s, second.cpu_s / old.cpu_s),
        max(first.peak_mib, second.peak_mib),
    )
    bars = "" if not case.first else f"{case.first:.2f} first, "
    bars += f"{case.share:.2f}, {case.bar_s:.2g} s" if case.share < 1 else f"{case.bar_s:.2g} s"
    times = " ".join(f"{each.cpu_s:8.2f} {each.wall_s:7.1f}" for each in (old, first, second))
    print(
        f"{case.name:26} {times} {shares[0]:7.3f} {shares[1]:7.3f} {bars:>23}"
        f" {old.peak_mib:6.0f} {peak_mib:5.0f} {len(two) / 1e6:6.1f} {os.getloadavg()[0]:5.1f}  {same}",
        flush=True,
    )
    is_missed = second.cpu_s > case.bar_s or shares[1] > case.share or shares[0] > (case.first or 1000)
    is_large = case.words[0] != "-c" and peak_mib > PEAK_MIB  # what a table has is in memory
    is_large |= suffix == "html" and len(two) > PAGE_MB * 1e6
    return is_missed or is_large or one != two


def every_rank(directory: Path, ranks: int) -> bool:
    """Prints what is kept of a rank and step, as it came and sealed; whether the bar is missed."""
    place = directory / "every_rank"
    place.mkdir()
    write_run(place / NAME.format("20240129_103000"), STEPS_OF_A_SESSION)
    header = make_header()
    kept = KeptBlocks(place, header.start_wall_ns, kept_bytes(None, ranks))
    for blocks in Simulation(Job(data=ranks), Noise(step=0.02, heavy=0.005, common=0.01)).rounds(BLOCKS):
        lines = [dump(encode_block(block)).encode() for block in blocks]
        for at in range(0, ranks, PER_NODE):
            kept.add(f"host-{at}", lines[at : at + PER_NODE])
        kept.flush()
    kept.close()
    run(["query", str(place), "select count(*) from every_rank"], REPO, directory / "0.txt")
    found = (path.stat().st_size for path in (place / "cache/kind=every_rank").rglob("*.parquet"))
    sizes = sum(path.stat().st_size for path in place.glob("perf_ranks_*")), sum(found)
    each = [size / ranks / BLOCKS / block_steps(ranks) for size in sizes]
    print(
        f"\nkept of a rank and step, {ranks:,} ranks, {BLOCKS * block_steps(ranks)} steps: {each[0]:.1f} B as"
        f" it came, {each[1]:.1f} B as a table; bar {BYTES_A_RANK} B"
    )
    return max(each) > BYTES_A_RANK


def recording(directory: Path, before: Path) -> bool:
    """Prints what recording a step costs either build, in turn; whether this one's costs more."""
    found: list[list[list[float]]] = [[], []]
    for number in range(2 * ROUNDS):
        build = (before, REPO)[number % 2]
        run(["-c", RECORDING, str(directory)], build, directory / "0.txt")
        found[number % 2].append([float(word) for word in (directory / "0.txt").read_text().split()[-2:]])
    is_missed = False
    for place, name in enumerate(("training thread", "writer")):
        old, new = ([each[place] for each in rounds] for rounds in found)
        print(
            f"recording, {name}: {min(old):.2f} to {max(old):.2f} us of a processor a step, now"
            f" {min(new):.2f} to {max(new):.2f}; least to least {min(new) / min(old):.2f}, bar 1.00"
        )
        is_missed |= min(new) > max(old)
    return is_missed


def main() -> int:
    """Measures and prints; returns 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--calls", type=int, default=500_000)  # of fewer, Python's start is the larger part
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--than", default=BEFORE, help="commit of the other build (default: %(default)s)")
    args = parser.parse_args()
    print(head("store", "analysis", "training", "rpc", "trace"))
    print(
        "n        1; seconds of a processor and by the clock, start included; outputs are the same of which"
    )
    print("         are named; MiB of the other build, and of this one at most\n")
    git = ["git", "-C", str(REPO), "worktree"]
    with tempfile.TemporaryDirectory(prefix="bench_store_") as name:
        directory, before = Path(name), Path(name) / "before"
        os.environ["XDG_CACHE_HOME"] = str(directory / "home")
        subprocess.run([*git, "add", "--detach", str(before), args.than], check=True, capture_output=True)
        for built in (REPO / "flagscale_perf/spine").glob("_hot.*.so"):
            shutil.copy(built, before / "flagscale_perf/spine")
        try:
            with ProcessPoolExecutor(1) as pool:  # a command's MiB begin with those of what starts it
                sizes = args.steps, args.sessions, args.calls
                cases = pool.submit(write_all, directory, *sizes).result()
            time.sleep(3)  # the times of a file that was only just written prove nothing
            print(
                f"{'':26} {args.than:>8} {'wall':>7} {'first':>8} {'wall':>7} {'second':>8} {'wall':>7}"
                f" {'share 1':>7} {'share 2':>7} {'bars':>23} {'MiB':>6} {'now':>5} {'MB out':>6}"
                f" {'load':>5}  same"
            )
            missed = [measure(case, directory, before) for case in cases]
            missed += [every_rank(directory, args.ranks), recording(directory, before)]
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True, capture_output=True)
    return int(any(missed))


if __name__ == "__main__":
    sys.exit(main())
