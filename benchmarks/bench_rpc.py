"""Calls between two processes, ours beside others: round trips from 1 KB to 64 MB, and the bytes of a whole
split forward pass; each as a ratio to copying the same memory, in rounds in which all take their turn.

python benchmarks/bench_rpc.py [--only echo|remote|replay] [--rounds N] [--peers PYTHON]

Ours have validation on, and an observer that gets the record of every call. `make rpc-peers` makes the Python
environment of --peers. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.rpc import bars, ours, peers, workload
from benchmarks.rpc.rounds import FLOOR, SEALING, SIZES, Cell, Cells, Copies, measure, timer
from flagscale_perf.spine.units import aligned

PEERS_PYTHON = Path(__file__).resolve().parents[1] / ".venv_rpc_peers/bin/python"
REMOTE = ("iceoryx2", "Ray actor")
PACKAGES = ("pyzmq", "msgpack", "msgspec", "cryptography", "grpcio")


def main() -> int:
    options = parse_options()
    print_head(options)
    missed = 0
    if options.only in (None, "echo"):
        cells = round_trips(options)
        print_round_trips(cells)
        missed += bars.report(bars.of_round_trips(cells))
    if options.only in (None, "remote"):
        missed += remote(options)
    if options.only in (None, "replay"):
        found = workload.replay(options.rounds[0])
        print_replays(found)
        missed += bars.report(bars.of_replays(found))
    return 1 if missed else 0


def remote(options: argparse.Namespace) -> int:
    """Beside the peers with an environment of their own; how many bars are missed."""
    if not options.peers.exists():
        print(f"\n{', '.join(REMOTE)}: not installed; make rpc-peers")
        return 0
    cells = beside_remote(options)
    print_round_trips(cells)
    return bars.report(bars.beside(cells, REMOTE))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("echo", "remote", "replay"))
    parser.add_argument(
        "--rounds", type=rounds, default=(5, 12), metavar="LEAST[,MOST]", help="default: 5,12"
    )
    parser.add_argument("--peers", type=Path, default=PEERS_PYTHON, metavar="PYTHON", help="that has them")
    return parser.parse_args()


def rounds(text: str) -> tuple[int, int]:
    least, _, most = text.partition(",")
    return int(least), int(most or least)


def print_head(options: argparse.Namespace) -> None:
    load = os.getloadavg()[0]
    print(f"machine    {platform.machine()}, {os.cpu_count()} cores, load {load:.1f} before")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    print(f"software   Python {platform.python_version()}, {versions}")
    print(f"n          {options.rounds[0]} to {options.rounds[1]} rounds, until the bars' ratios are steady")


# ---- round trips --------------------------------------------------------------------------------


def round_trips(options: argparse.Namespace) -> Cells:
    """The times of ours and of every peer in this environment."""
    copies = Copies(SIZES[-1])
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench_rpc_")))
        echoes = ours.open_all(directory, copies.source, stack)
        echoes |= peers.open_all(directory, copies.source, stack)
        watched = [(name, size) for name in (ours.UNIX, ours.ZEROMQ) for size in SIZES[2:]]
        contenders = {name: timer(echo) for name, echo in ({SEALING: copies.sealed} | echoes).items()}
        return measure(contenders, copies, options.rounds, watched)


def beside_remote(options: argparse.Namespace) -> Cells:
    """Ours once more, beside the peers of another environment: alone with them, as some keep a core busy."""
    copies = Copies(SIZES[-1])
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench_rpc_")))
        echoes = ours.open_all(directory, copies.source, stack, (ours.UNIX, ours.ZEROMQ))
        contenders = {name: timer(echo) for name, echo in echoes.items()}
        for name in REMOTE:
            contenders[name] = stack.enter_context(peers.open_remote(options.peers, name, SIZES[-1]))
        return measure(contenders, copies, options.rounds, [])


def print_round_trips(cells: Cells) -> None:
    names = list(dict.fromkeys(name for name, _ in cells))
    print("\nround trip of a message and its echo, us: p10 of the best round")
    print_table(cells, names, lambda cell: f"{cell.best_ns / 1e3:.1f}")
    print(f"\ntimes {FLOOR}: of the best rounds of both; by these the bars are judged")
    print_table(cells, names, lambda cell: f"{cell.best_ratio:.2f}")
    print(f"\ntimes {FLOOR} of the same round: median of the rounds (their quartiles apart, % of it)")
    print_table(cells, names, lambda cell: f"{cell.ratio:.2f} ({100 * cell.spread:.0f})")


def print_table(cells: Cells, names: list[str], shown: Callable[[Cell], str]) -> None:
    rows = [[name, *(shown(cells[name, size]) for size in SIZES)] for name in names]
    print("\n".join(aligned([["", *map(size_name, SIZES)], *rows], 1)))


def size_name(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


# ---- whole programs --------------------------------------------------------------------------------


def print_replays(found: workload.Replays) -> None:
    paths = [workload.COPY, *dict.fromkeys(path for _, path in found.predicted_s)]
    for load, calls in workload.LOADS.items():
        moved = sum(map(sum, calls)) / (1 << 20)
        print(f"\nLlama-3.2-1B, {load}: {len(calls)} calls, {moved:,.1f} MiB; seconds, of the rounds")
        rows = [["", "best", "median", "x copy", "predicted", "off"]]
        for path in paths:
            times = [f"{found.best(load, path):.4f}", f"{found.middle(load, path):.4f}"]
            copy = f"{found.ratio(load, path, workload.COPY):.2f}"
            if path == workload.COPY:
                rows.append([path, *times, copy, "", ""])
                continue
            predicted = f"{found.predicted_s[load, path]:.4f}"
            rows.append([path, *times, copy, predicted, f"{100 * found.off(load, path):+.0f} %"])
        print("\n".join(aligned(rows, 1)))


if __name__ == "__main__":
    sys.exit(main())
