"""Whether a real TransferQueue gains what the model of a traced run says that a change gains.

    .venv_trace/bin/python benchmarks/bench_trace_advice.py [--rounds 30]

A run of puts and gets of many shapes (rows, fields, bytes) is traced on real Ray with TransferQueue's simple
storage, and the report's model is fitted to its records. Each change is then asked of the model, and
measured: before and after take turns, on shapes of which the run had none after the change, and what is
compared is the median of either. `again` is the same before and after: its gain is noise. What a change
gains is the share of the time for the same samples that it saves. The bar is that the predicted gain is right
within 20 % of the measured one; where a change gains less than the noise, that is said, and it is neither met
nor missed. Exits 1 where the bar is missed.

More storage units are not among the changes: the model has no term for them, so nothing is predicted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.provenance import head  # noqa: E402

os.environ |= {"TQ_NUM_THREADS": "2", "RAY_DEDUP_LOGS": "0", "PYTHONPATH": str(ROOT)}

import ray  # noqa: E402
import torch  # noqa: E402
import transfer_queue  # noqa: E402
from tensordict import TensorDict  # noqa: E402

from flagscale_perf.hosts.transfer_queue.install import install  # noqa: E402
from flagscale_perf.spine.records import Record  # noqa: E402
from flagscale_perf.trace.analysis.model import Model, fit  # noqa: E402
from flagscale_perf.trace.analysis.sums import Sums  # noqa: E402
from flagscale_perf.trace.options import TraceOptions  # noqa: E402
from flagscale_perf.trace.records import Kind, OperationRecord  # noqa: E402

BAR = 0.20
WARM_UP, RECORDED = 3, 6
CELL_BYTES = (16, 256, 2048)  # of one field of one row, in the recorded run
SHAPES = [(rows, fields) for rows in (16, 64, 512, 1024) for fields in (1, 4, 8)]
MAX_BYTES = 8 << 20


class Side(NamedTuple):
    """Some operations of one shape, which together have all samples."""

    rows: int
    fields: int
    cell_bytes: int
    times: int = 1

    @property
    def size_bytes(self) -> int:
        """Of one of them."""
        return self.rows * self.fields * self.cell_bytes


class Change(NamedTuple):
    """What is compared."""

    name: str
    kind: Kind
    before: Side
    after: Side


CHANGES = (
    Change("again", Kind.GET, Side(1024, 4, 256), Side(1024, 4, 256)),
    Change("a get of 2 fields instead of 4", Kind.GET, Side(1024, 4, 256), Side(1024, 2, 256)),
    Change("a put of 2 fields instead of 4", Kind.PUT, Side(1024, 4, 256), Side(1024, 2, 256)),
    Change("4 gets of 256 rows as one of 1024", Kind.GET, Side(256, 4, 256, 4), Side(1024, 4, 256)),
    Change("16 gets of 16 rows as 2 of 128", Kind.GET, Side(16, 4, 256, 16), Side(128, 4, 256, 2)),
    Change("16 puts of 16 rows as 2 of 128", Kind.PUT, Side(16, 4, 256, 16), Side(128, 4, 256, 2)),
    Change("fields packed two in one, get", Kind.GET, Side(1024, 4, 256), Side(1024, 2, 512)),
    Change("half the bytes, put", Kind.PUT, Side(64, 4, 16384), Side(64, 4, 8192)),
)


class Queue:
    """A client, whose operations are recorded while that is switched on.

    Attributes:
        kept: records.
    """

    def __init__(self) -> None:
        self.kept: list[Record] = []
        self._client = transfer_queue.get_client()
        self._installation = install(
            TraceOptions(trace=False, detail=True, directory=Path("unused")), self.kept.append
        )
        self._partitions = 0

    def close(self) -> None:
        """Takes the patches back."""
        self._installation.undo()

    def once(self, side: Side) -> dict[Kind, int]:
        """Puts and gets all samples, clears them; how long the puts and the gets took, in nanoseconds."""
        cells = side.cell_bytes // 4
        data = TensorDict(
            {f"f{place}": torch.zeros(side.rows, cells) for place in range(side.fields)},
            batch_size=side.rows,
        )
        first = len(self.kept)
        for _ in range(side.times):
            self._partitions += 1
            made = self._client.put(data=data, partition_id=f"p{self._partitions}")
            self._client.get_data(made)
            self._client.clear_samples(made)
        found = {Kind.PUT: 0, Kind.GET: 0}
        for record in self.kept[first:]:
            if isinstance(record, OperationRecord):
                found[Kind(record.operation)] += record.total_ns
        return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30, help="in which before and after take turns")
    rounds = parser.parse_args().rounds
    ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    transfer_queue.init()
    queue = Queue()
    try:
        models = recorded(queue)
        print(head("trace/analysis"))
        print(f"n        medians of {rounds} rounds; gain: share of the time that is saved\n")
        for kind, model in models.items():
            print(said(kind, model))
        if not all(models.values()):
            return 1
        return measured(queue, models, rounds)
    finally:
        queue.close()
        transfer_queue.close()
        ray.shutdown()


def recorded(queue: Queue) -> dict[Kind, Model]:
    """The models of a run that has none of the shapes after a change."""
    after = {change.after[:3] for change in CHANGES if change.name != "again"}
    sides = [Side(*shape, cell) for shape in SHAPES for cell in CELL_BYTES]
    sides = [side for side in sides if side[:3] not in after and side.size_bytes <= MAX_BYTES]
    for _ in range(WARM_UP):
        queue.once(sides[0])
    queue.kept.clear()
    for _ in range(RECORDED):
        for side in sides:
            queue.once(side)
    sums = Sums()
    for record in queue.kept:
        if isinstance(record, OperationRecord):
            sums.add_operation(record, "client", "", "error" if record.error else "")
    return {kind: fit(sums.operations[kind].shapes) for kind in Kind}


def said(kind: Kind, model: Model) -> str:
    """Of a model, in a line."""
    if not model:
        return f"{kind.name.lower()}: no model: {model.reason}"
    costs = f"{model.fixed_ns / 1e6:.2f} ms + {model.cell_ns / 1e3:.2f} us a cell"
    costs += f" + {model.byte_ns * (1 << 20) / 1e6:.2f} ms a MB"
    of = f"{model.calls} operations of {model.shapes} shapes"
    return f"{kind.name.lower()} = {costs}; {100 * model.error:.0f} % off, median of {of}"


def measured(queue: Queue, models: dict[Kind, Model], rounds: int) -> int:
    """Prints each change; 1 where the bar is missed."""
    print(f"\n{'change':<36}{'before ms':>10}{'after ms':>10}{'gain':>8}{'predicted':>11}{'off by':>8}")
    noise, missed = 0.0, 0
    for change in CHANGES:
        times: tuple[list[int], list[int]] = ([], [])
        for number in range(rounds + WARM_UP):
            for place in (0, 1) if number % 2 else (1, 0):
                took = queue.once((change.before, change.after)[place])[change.kind]
                if number >= WARM_UP:
                    times[place].append(took)
        before, after = (statistics.median(each) for each in times)
        gain, predicted = 1 - after / before, predicted_gain(models[change.kind], change)
        row = f"{change.name:<36}{before / 1e6:>10.2f}{after / 1e6:>10.2f}{gain:>8.1%}{predicted:>11.1%}"
        if change.name == "again":
            noise = max(abs(gain), spread(times[0]))
            print(f"{row}{'':>8}  noise: {noise:.1%}")
        elif abs(gain) <= noise:
            print(f"{row}{'':>8}  within the noise: not judged")
        else:
            error = abs(predicted - gain) / abs(gain)
            missed += error > BAR
            print(f"{row}{error:>8.0%}  {'met' if error <= BAR else 'MISSED'}")
    print(f"\nbar: off by at most {BAR:.0%} of the measured gain")
    return int(missed > 0)


def spread(times: Sequence[int]) -> float:
    """By how much the medians of the two halves of one side differ."""
    halves = times[::2], times[1::2]
    one, two = (statistics.median(half) for half in halves)
    return abs(1 - two / one)


def predicted_gain(model: Model, change: Change) -> float:
    """By the model."""
    before, after = (
        side.times * model.predict(side.rows, side.fields, side.size_bytes)
        for side in (change.before, change.after)
    )
    return 1 - after / before


if __name__ == "__main__":
    begin: Any = time.monotonic()
    code = main()
    print(f"{time.monotonic() - begin:.0f} s")
    sys.exit(code)
