"""Trains with what is planted, on real FlagScale, and records each run with its truth.

python benchmarks/slow_training/record.py SEED [--only GLOB ...] [--into DIR]

A run that is recorded already is not run again. One at a time: a run beside another has another truth.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.recorded import record_all, train
from benchmarks.slow_training import inside
from benchmarks.slow_training.costs import truth_of
from benchmarks.slow_training.plants import ALWAYS, INTERLEAVED, Planted, drawn
from flagscale_perf.training.capture import unpacked
from flagscale_perf.training.marks import spans
from flagscale_perf.training.phases import PHASES, TABLE, Kind
from flagscale_perf.training.rank_records import PHASE_BASE
from flagscale_perf.training.records import CapturedRecord
from flagscale_perf.training.work import WORK
from tests.processes import flagscale as fs

HERE = Path(__file__).parent
UNKNOWN = [-1] * len(WORK)
PIPELINE_MICROBATCHES, PIPELINE_LAYERS = 3, 4
SCHEMA = pa.schema(
    [
        ("rank", pa.int32()), ("iteration", pa.int32()), ("phase", pa.dictionary(pa.int8(), pa.string())),
        ("own_ns", pa.int64()), ("wait_ns", pa.int64()), ("start_ns", pa.int64()),
        *((name, pa.int64()) for name in WORK),
    ]
)  # fmt: skip

LIST = re.compile(r"\[\s+([-\d.,\s]+?)\s+\]")  # of numbers: on one line
Steps = tuple[tuple[int, int], Sequence[int], list[tuple[str, int]]]  # a step's number and rank, work, spans


def main() -> int:
    """Records what is not recorded, a line for each; 1 where a run failed."""
    return record_all(__doc__, drawn, HERE, "truth/{}.json", record)


def record(plan: Planted, into: Path) -> str:
    """Trains once; the truth is written last. Returns what the delays cost."""
    directory, truth = into / "runs" / plan.name, into / "truth" / f"{plan.name}.json"
    directory.mkdir(parents=True, exist_ok=True)
    truth.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made, _neighbour(plan.busy):
        work = Path(made)
        finished = train(plan, inside.__file__, host(plan), work)
        load = os.getloadavg()[0]
        (path,) = (work / "perf").glob("perf_records_*.jsonl")
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        kept = first_half(rows)
        text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in kept)
        (directory / "perf.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        table = table_of(kept)
        pq.write_table(table, directory / "steps.parquet", compression="zstd")
        steps = sorted(set(table["iteration"].to_pylist()))
        flops = json.loads((work / inside.FLOPS).read_text()) if (work / inside.FLOPS).exists() else {}
        facts = {
            "ranks": plan.ranks,
            "stages": [rank * plan.stages // plan.ranks for rank in range(plan.ranks)],
            "layout": layout(plan),
            "host": "FlagScale 0.8.0 on the CPU: sleeps for a device's time",
            "cores": os.cpu_count(),
            "load": round(load, 1),
            "first_iteration": steps[0],
            "iteration": steps[-1],
            "steps": len(steps),
            "flops_per_unit": flops or None,
        }
        (directory / "run.json").write_text(json.dumps(facts, indent=1) + "\n")
        step_ms = [(each.iteration, each.elapsed_ms) for each in finished.logged]
        found = truth_of(plan, step_ms, inside.more_work_ms(plan, flops))
        text = json.dumps(found, indent=1) + "\n"
        truth.write_text(LIST.sub(lambda found: f"[{' '.join(found[1].split())}]", text))
    return f"{found['cost_ms']:6.1f} +- {found['within_ms']:4.1f} of {found['step_ms']:4.0f} ms, "


@contextlib.contextmanager
def _neighbour(is_busy: bool) -> Iterator[None]:
    if not is_busy:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def layout(plan: Planted) -> str:
    """As people write it."""
    experts = ", EP2" if "--expert-model-parallel-size" in plan.options else ""
    return f"PP{plan.stages} DP{plan.ranks // plan.stages}{experts}"


def host(plan: Planted) -> list[object]:
    """The host's options."""
    steps = ALWAYS + plan.switched
    options: list[object] = [*fs.SMALL, "--vocab-size", 4200, "--global-batch-size", 4 * plan.ranks // 2]
    if plan.stages > 1:
        microbatches = PIPELINE_MICROBATCHES + (plan.options == INTERLEAVED)  # there, whole rounds of stages
        batch = 2 * microbatches * plan.ranks // plan.stages
        options += ["--pipeline-model-parallel-size", plan.stages, "--num-layers", PIPELINE_LAYERS]
        options += ["--global-batch-size", batch, "--perf-capture-steps", 20]
    if "--micro-batch-size" in plan.options:
        options += ["--global-batch-size", inside.DOCUMENT_MICROBATCHES * plan.ranks]
    if plan.more_work == "more_microbatches":
        options += ["--global-batch-size", 2 * inside.MICROBATCHES * plan.ranks]
    # A rank that runs one more micro-batch reads more than its share of the data.
    return [*options, *plan.options, "--train-iters", 2 * steps, "--exit-interval", steps]


def first_half(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The run file as if the run had ended after the first ALWAYS steps."""
    cut = [
        row | {"iteration": ALWAYS} if row["kind"] == "ranks" and row["first_iteration"] <= ALWAYS else row
        for row in rows  # what is read of ranks' hosts comes every ten seconds
    ]
    return [row for row in cut if row.get("iteration", 0) <= ALWAYS or row["kind"] in ("end", "event")]


def table_of(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """What any monitor can know: for each rank, step and phase, what it did by itself and what it waited. Of
    ranks that are alone in their stage, only captured steps are known.
    """
    table: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    by_cuts = [step for row in rows if row["kind"] == "cuts" for step in _of_cuts(row)]
    for key, work, found in sorted(by_cuts or _of_captured(rows), key=lambda step: step[0]):
        for name, times in _by_phase(found).items():
            values = (*reversed(key), name, *times, *(None if each < 0 else each for each in work))
            for column, value in zip(table.values(), values, strict=True):
                column.append(value)
    return pa.table(table, schema=SCHEMA)


def _of_cuts(row: dict[str, Any]) -> Iterator[Steps]:
    """A step begins where the last wait of the step before ended, for all ranks alike."""
    width, waits = len(row["columns"]), len(row["waits"])
    for number, rank in enumerate(row["ranks"]):
        own = row["own_ns"][number * width : (number + 1) * width]
        waited = row["wait_ns"][number * waits : (number + 1) * waits]
        work = (row.get("work") or UNKNOWN * len(row["ranks"]))[number * len(WORK) : (number + 1) * len(WORK)]
        steps: list[tuple[str, int]] = []
        for cut, wait in enumerate(row["waits"]):
            parts = [
                (PHASES[column % PHASE_BASE], ns)
                for column, ns in zip(row["columns"], own, strict=True)
                if column // PHASE_BASE == cut
            ]
            steps += sorted(parts, key=lambda each: each[0] != "zero_grad")  # others run as they are listed
            steps.append((PHASES[wait], waited[cut]))
        yield (row["iteration"], rank), work, steps


def _of_captured(rows: Sequence[dict[str, Any]]) -> Iterator[Steps]:
    ends_ns: dict[int, int] = {}
    names = [field.name for field in fields(CapturedRecord)]
    for row in rows:
        if row["kind"] == "captured":
            step = CapturedRecord(**{name: row[name] for name in names})
            end_ns = step.start_ns + step.train_step_ns
            if step.rank in ends_ns:
                found = [("between_steps", step.start_ns - ends_ns[step.rank])]
                found += [(PHASES[phase], ns) for phase, ns in spans(unpacked(step), step.start_ns, end_ns)]
                yield (step.iteration, step.rank), UNKNOWN, found
            ends_ns[step.rank] = end_ns


def _by_phase(parts: Iterable[tuple[str, int]]) -> dict[str, tuple[int, int, int]]:
    """Own time, waiting, and when it began after the step did: all of a phase together."""
    found: dict[str, tuple[int, int, int]] = {}
    at_ns = 0
    for name, ns in parts:
        own_ns, wait_ns, start_ns = found.get(name, (0, 0, at_ns))
        is_wait = TABLE[name].kind is Kind.WAITING
        found[name] = own_ns + ns * (not is_wait), wait_ns + ns * is_wait, start_ns
        at_ns += ns
    return found


if __name__ == "__main__":
    sys.exit(main())
