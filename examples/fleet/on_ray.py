"""Three questions to a fleet's tables, answered by Ray Data: `python on_ray.py DIRECTORY ANSWERS.json`.

Each task takes some runs and makes a few rows of each, so that no other row crosses between machines. Of
flagscale_perf nothing is imported. The cluster is one of two nodes on this machine; elsewhere,
`ray.init("auto")` joins the one that is there, and the directory is one that all its machines see.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import ray
from lake import PERIOD_WALL_NS, Rows, answer, runs
from pyarrow.parquet import ParquetFile
from ray.cluster_utils import Cluster
from ray.data import DataContext

NODE = {"num_cpus": 1, "object_store_memory": 200_000_000}
TASKS = 16  # each has some of the runs
Row = dict[str, Any]
Run = dict[str, list[str]]  # files by kind


def read(run: Run, kind: str, *columns: str) -> list[Row]:
    """The rows of a run's table."""
    return [row for path in run[kind] for row in ParquetFile(path).read(columns).to_pylist()]


def trained(run: Run, *columns: str) -> list[Row]:
    """Steps that count in rates."""
    steps = read(run, "step", "run_id", "warmup", "outcome", *columns)
    return [step for step in steps if step["warmup"] == 0 and step["outcome"] == "trained"]


def p95_of(run: Run) -> Iterable[Row]:
    """The shortest iteration time that 95 % of a run's steps do not exceed."""
    if steps := trained(run, "iteration_ns"):
        times, count = sorted(step["iteration_ns"] for step in steps), len(steps)
        yield {"run_id": steps[0]["run_id"], "steps": count, "p95_ns": times[-(-95 * count // 100) - 1]}


def work_of(run: Run) -> Iterable[Row]:
    """A run's FLOPs, and a billion times what its devices could have done; as text: 64 bits hold neither."""
    steps = trained(run, "iteration_ns", "model_flops")
    (header,) = read(run, "header", "global_batch_size", "peak_flop_per_s", "world_size")
    own_ns, flops = (sum(int(step[name]) for step in steps) for name in ("iteration_ns", "model_flops"))
    most = own_ns * int(header["peak_flop_per_s"]) * header["world_size"]
    yield {"batch": header["global_batch_size"], "steps": len(steps), "flops": str(flops), "most": str(most)}


def excess_of(run: Run) -> Iterable[Row]:
    """How much longer each host's ranks worked in the period than the middle rank of the same run."""
    times = {step["iteration"]: step["at_wall_ns"] for step in read(run, "step", "iteration", "at_wall_ns")}
    hosts = {each["rank"]: each["hostname"] for each in read(run, "node", "rank", "hostname")}
    stretches = defaultdict[int, list[Row]](list)
    for rank in read(run, "ranks", "rank", "first_iteration", "iteration", "work_ns"):
        if PERIOD_WALL_NS[0] <= times[rank["iteration"]] < PERIOD_WALL_NS[1] and rank["work_ns"] is not None:
            stretches[rank["iteration"]].append(rank)
    found = defaultdict[str, Counter[str]](Counter)
    for ranks in stretches.values():
        middle_ns = sorted(rank["work_ns"] for rank in ranks)[(len(ranks) - 1) // 2]
        for rank in ranks:
            steps = rank["iteration"] - rank["first_iteration"] + 1
            more_ns = max(rank["work_ns"] - middle_ns, 0) * steps
            found[hosts[rank["rank"]]].update(steps=steps, more_ns=more_ns)
    return ({"hostname": host, **sums} for host, sums in found.items())


def by_run(function: Callable[[Run], Iterable[Row]]) -> list[Row]:
    """What a function makes of each run, on all nodes."""
    items = runs(sys.argv[1], "header", "node", "ranks", "step")
    dataset = ray.data.from_items([{"run": run} for run in items], override_num_blocks=TASKS)
    rows: list[Row] = dataset.flat_map(lambda row: [*function(row["run"])]).take_all()
    return rows


def summed(rows: Iterable[Row], key: str) -> dict[Any, Counter[str]]:
    """Sums of the other columns."""
    found = defaultdict[Any, Counter[str]](Counter)
    for row in rows:
        found[row.pop(key)].update({name: int(value) for name, value in row.items()})
    return found


def p95() -> Rows:
    """By run."""
    return sorted([*row.values()] for row in by_run(p95_of))


def mfu() -> Rows:
    """By global batch size, in millionths."""
    found = summed(by_run(work_of), "batch")
    return [[batch, of["steps"], of["flops"] * 10**15 // of["most"]] for batch, of in sorted(found.items())]


def hosts() -> Rows:
    """By host, the slowest first."""
    found = summed(by_run(excess_of), "hostname")
    rows = [[host, of["steps"], of["more_ns"]] for host, of in found.items()]
    return sorted(rows, key=lambda row: (-row[2], row[0]))


def main() -> None:
    """Begins a cluster of two nodes, asks all three, and ends it."""
    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    try:
        cluster.add_node(**NODE)
        ray.init(address=cluster.address, log_to_driver=False)
        DataContext.get_current().enable_progress_bars = False
        answer({"p95": p95, "mfu": mfu, "hosts": hosts}, Path(sys.argv[2]))
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
