"""Steps of vLLM profiled while its own `bench latency` runs, each rank in its worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from flagscale_perf.analysis.job import run_files_in
from flagscale_perf.bench.serving.model import model_options, read_model, vllm_words, write_served
from flagscale_perf.bench.serving.server import last_error
from flagscale_perf.bench.serving.vllm_python import clean_environment, devices, plugin_path, rank_cores
from flagscale_perf.profile.options import ProfileOptions, Schedule, Steps
from flagscale_perf.profile.standalone.model import TRAIN, Run
from flagscale_perf.spine.errors import PerfError

# The wheel for CPUs has another name than the one by which `vllm bench` asks for its version.
BENCH = (
    "from vllm.benchmarks import latency; from vllm.utils.argparse_utils import FlexibleArgumentParser as P;"
    " parser = P(); latency.add_cli_args(parser); latency.main(parser.parse_args())"
)
OUTPUT = 8  # tokens that each request makes
WORK = "vllm"  # folder beside the run file


def check(run: Run) -> None:
    """Raises PerfError for what cannot be run."""
    if run.mode == TRAIN:
        raise PerfError("--mode train: vLLM does not train; leave it out, or give --engine transformers")
    if run.tokens + OUTPUT > run.longest:
        raise PerfError(
            f"--num-tokens {run.tokens} and {OUTPUT} of output are more than --max-seq-len {run.longest};"
            " raise the latter"
        )
    found = devices()
    if run.ranks > found.count:
        raise PerfError(
            f"--tp {run.tensor} --pp {run.pipeline} need {run.ranks} {found.what}s, and there are"
            f" {found.count}"
        )


def profile(run: Run) -> None:
    """Runs it; the run file is in its directory. Raises PerfError with vLLM's own reason where it fails."""
    check(run)
    work = run.directory / WORK
    work.mkdir(parents=True, exist_ok=True)
    model = read_model(run.model)
    served = write_served(model, work / "model")
    first = max(1, run.warmup)  # step 0 of a phase is never profiled
    options = ProfileOptions(Steps(first, first + run.steps - 1), run.directory.absolute())
    schedule = Schedule.of(options)
    assert schedule is not None
    words = vllm_words(
        model_options(model, served)
        | {
            "tensor-parallel-size": run.tensor,
            "pipeline-parallel-size": run.pipeline,
            "input-len": run.tokens,
            "output-len": OUTPUT,
            "batch-size": run.batch,
            "num-iters-warmup": first,
            "num-iters": schedule.length + 1,
            "max-model-len": run.longest,
            "enforce-eager": True,
            "disable-detokenize": True,
        }
    )
    before, log = set(run_files_in(run.directory)), work / "vllm.log"
    with log.open("wb") as said:
        code = subprocess.call(
            [sys.executable, "-c", BENCH, *words],
            env=_environment(run, options, work),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    if code:
        raise PerfError(f"vLLM ended with exit code {code}: {last_error(log)} ({log})")
    if not set(run_files_in(run.directory)) - before:
        raise PerfError(f"vLLM ended without a profile; see {log}")


def _environment(run: Run, options: ProfileOptions, work: Path) -> dict[str, str]:
    environment, found = clean_environment(), devices()
    path = filter(None, (str(plugin_path(work / "plugin")), environment.get("PYTHONPATH")))
    cores = rank_cores(run.ranks, run.ranks, found.names)
    on_cores = {"VLLM_CPU_OMP_THREADS_BIND": cores, "VLLM_CPU_KVCACHE_SPACE": "1"}
    bound = {} if found.are_gpus else on_cores
    return environment | bound | options.variables | {"PYTHONPATH": ":".join(path)}
