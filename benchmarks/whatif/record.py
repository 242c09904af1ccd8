"""Trains on real FlagScale, whose layers sleep, and keeps each run file and the host's own step times.

python benchmarks/whatif/record.py SEED [--only GLOB ...] [--into DIR] [--list]

A run that is recorded already is not run again. One at a time: a run beside another has another truth.
"""

from __future__ import annotations

import argparse
import fnmatch
import gzip
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.whatif import inside
from benchmarks.whatif.plans import MICRO_BATCH, RAMP, RAMP_SAMPLES, Training, drawn
from tests.processes import flagscale as fs

HERE = Path(__file__).parent
MONITOR = ("--enable-perf-monitor", "--perf-breakdown", "--perf-max-overhead", 100, "--perf-log-dir", "perf")
CAPTURED = 1000  # as many steps as come
KEPT = ("header", "node", "clock", "step", "capture", "captured", "end")


def main() -> int:
    """Records what is not recorded, a line for each; 1 where a run failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seed", type=int)
    parser.add_argument("--only", nargs="*", default=["*"], help="names of runs, with * and ?")
    parser.add_argument("--into", type=Path, default=HERE, help="where runs/ is")
    parser.add_argument("--list", action="store_true", help="the names only")
    options = parser.parse_args()
    failed = 0
    for training in drawn(options.seed):
        directory = options.into / "runs" / training.name
        if not any(fnmatch.fnmatch(training.name, pattern) for pattern in options.only):
            continue
        if options.list or (directory / "truth.json").exists():
            print(training.name, "recorded" if (directory / "truth.json").exists() else "")
            continue
        begin = time.monotonic()
        said = record(training, directory)
        failed |= bool(said)
        print(f"{training.name:24} took {time.monotonic() - begin:.0f} s {said}", flush=True)
    return failed


def record(training: Training, directory: Path) -> str:
    """Trains once, and says why that failed; the truth is written last."""
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        finished = train(training, work)
        if finished.returncode:
            return f"failed:\n{finished.output[-3000:]}"
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


def train(training: Training, directory: Path) -> fs.Finished:
    """In that directory."""
    given = directory / "plan.json"
    given.write_text(json.dumps(asdict(training)))
    words = fs.launched(*map(str, [inside.__file__, given, fs.train_gpt(), *host(training), *MONITOR]))
    return fs.run(fs.workers(training.ranks, *words), directory)


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
