"""What a bandwidth test says of a slow link between two nodes: two network namespaces of this machine with
two ranks each, joined by a link that the kernel holds to 400 Mbit/s. Needs root, `ip` and `tc`.

python -m benchmarks.bench_levels
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.provenance import head  # noqa: E402
from flagscale_perf.analysis.run_file import find_run_file  # noqa: E402
from flagscale_perf.bench.analysis.collectives import algbw  # noqa: E402
from flagscale_perf.bench.analysis.points import MESSAGE, measured  # noqa: E402
from flagscale_perf.bench.analysis.source import read_bench  # noqa: E402
from flagscale_perf.bench.names import BETWEEN_NODES, INSIDE_NODE  # noqa: E402
from flagscale_perf.cli.instruments import load_records  # noqa: E402

MBIT_PER_S = 400
PLANTED_GB_PER_S = MBIT_PER_S / 8 / 1e3
NODES, RANKS, PORT = 2, 2, 29517
FIRST = "10.217.0.1"
LEAST = 0.8  # of the planted rate: headers take a part, and the largest message is 1 MB


def main() -> int:
    """1 where the link between the nodes is not what was planted."""
    print(head("bench"))
    with tempfile.TemporaryDirectory() as directory, _namespaces() as names:
        processes = [_node(name, place, Path(directory)) for place, name in enumerate(names)]
        codes = [process.wait() for process in processes]
        if any(codes):
            print(f"the nodes ended with {codes}")
            return 1
        load_records()
        part = read_bench(find_run_file(Path(directory))).parts["bandwidth"]
    speeds = {}
    for level in (INSIDE_NODE, BETWEEN_NODES):
        points = measured(part, op=MESSAGE, way="one way", level=level)
        largest = max(point.case["size_bytes"] for point in points)
        found = [algbw(point) or 0.0 for point in points if point.case["size_bytes"] == largest]
        speeds[level] = median(found)
        print(
            f"{level}: {min(found):.4f} to {max(found):.4f} GB/s, {len(found)} links, messages of {largest:,}"
        )
    share = speeds[BETWEEN_NODES] / PLANTED_GB_PER_S
    is_met = LEAST <= share <= 1.1 and speeds[INSIDE_NODE] > speeds[BETWEEN_NODES]
    print(
        f"planted between them: {PLANTED_GB_PER_S:.3f} GB/s; measured {share:.0%} of it, in the middle:"
        f" {'met' if is_met else 'MISSED'}, {LEAST:.0%} to 110 % asked for"
    )
    return 0 if is_met else 1


def _node(name: str, place: int, directory: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "GLOO_SOCKET_IFNAME": name,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.Popen(
        [
            "ip",
            "netns",
            "exec",
            name,
            sys.executable,
            "-m",
            "torch.distributed.run",
            f"--nnodes={NODES}",
            f"--nproc-per-node={RANKS}",
            f"--node-rank={place}",
            f"--master-addr={FIRST}",
            f"--master-port={PORT}",
            ROOT / "scripts/distributed_benchmark.py",
            "--quick",
            "--operations",
            "all_reduce",
            "--max-size",
            "1M",
            "-o",
            directory,
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
    )


@contextlib.contextmanager
def _namespaces() -> Iterator[list[str]]:
    """Each with one end of the link, which has the namespace's name."""
    names = [f"bw{os.getpid() % 10**6}{end}" for end in "ab"]
    try:
        for name in names:
            _run("ip", "netns", "add", name)
        _run("ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1])
        for place, name in enumerate(names, 1):
            _run("ip", "link", "set", name, "netns", name)
            _run("ip", "-n", name, "address", "add", f"10.217.0.{place}/24", "dev", name)
            _run("ip", "-n", name, "link", "set", name, "up")
            _run("ip", "-n", name, "link", "set", "lo", "up")
            _run(
                "tc",
                "-n",
                name,
                "qdisc",
                "add",
                "dev",
                name,
                "root",
                "tbf",
                "rate",
                f"{MBIT_PER_S}mbit",
                "burst",
                "256kb",
                "latency",
                "100ms",
            )
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


if __name__ == "__main__":
    sys.exit(main())
