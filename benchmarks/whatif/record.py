"""Trains on real FlagScale, whose layers sleep, and keeps each run file and the host's own step times.

python benchmarks/whatif/record.py SEED [--only GLOB ...] [--into DIR] [--list]

A run that is recorded already is not run again. One at a time: a run beside another has another truth.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.recorded import record_all, train
from benchmarks.whatif import inside
from benchmarks.whatif.plans import MICRO_BATCH, RAMP, RAMP_SAMPLES, Training, drawn
from tests.processes import flagscale as fs

HERE = Path(__file__).parent
CAPTURED = 1000  # as many steps as come
KEPT = ("header", "node", "clock", "step", "capture", "captured", "end")


def main() -> int:
    """Records what is not recorded, a line for each; 1 where a run failed."""
    return record_all(__doc__, drawn, HERE, "runs/{}/truth.json", record)


def record(training: Training, into: Path) -> str:
    """Trains once; the truth is written last."""
    directory = into / "runs" / training.name
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        finished = train(training, inside.__file__, host(training), work)
        (path,) = (work / "perf").glob("perf_records_*.jsonl")
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "perf.jsonl.gz").write_bytes(gzip.compress(kept(path.read_bytes()), mtime=0))
    truth = {
        "training": asdict(training),
        "load": round(os.getloadavg()[0], 1),
        "step_ms": {each.iteration: each.elapsed_ms for each in finished.logged},
    }
    (directory / "truth.json").write_text(json.dumps(truth) + "\n")
    return ""


def kept(run_file: bytes) -> bytes:
    """Of a run file what predictions are made of."""
    lines = run_file.splitlines(keepends=True)
    return b"".join(line for line in lines if json.loads(line)["kind"] in KEPT)


def host(training: Training) -> list[object]:
    """The host's options."""
    stages, batches = len(training.layers), RAMP[-1] if training.ramps else training.batches
    samples = MICRO_BATCH * training.replicas
    options: list[object] = [
        *fs.SMALL, "--vocab-size", 4200, "--pipeline-model-parallel-size", stages,
        "--num-layers", sum(training.layers), "--global-batch-size", samples * batches,
        "--perf-capture-steps", CAPTURED, "--exit-interval", training.steps,
    ]  # fmt: skip
    if len({*training.layers}) > 1:
        options += ["--decoder-first-pipeline-num-layers", training.layers[0]]
    if training.chunks > 1:
        options += ["--num-layers-per-virtual-pipeline-stage", training.layers[0] // training.chunks]
        options += ["--no-check-for-nan-in-loss-and-grad", "--rerun-mode", "disabled"]
    if not training.ramps:
        return [*options, "--train-iters", 2 * training.steps]
    growth = samples * (RAMP[1] - RAMP[0])
    ramp = samples * RAMP[0], growth, RAMP_SAMPLES * (len(RAMP) - 1) * training.replicas
    return [*options, "--rampup-batch-size", *ramp, "--train-samples", 100 * samples * batches]


if __name__ == "__main__":
    sys.exit(main())
