"""Steps of vLLM profiled while its own `bench latency` runs, each rank in its worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from flagscale_perf.analysis.job import run_files_in
from flagscale_perf.bench.serving.model import model_options, read_model, vllm_words, write_served
from flagscale_perf.bench.serving.server import last_error
from flagscale_perf.bench.serving.vllm_python import clean_environment, devices, plugin_path, rank_cores
from flagscale_perf.profile.options import ProfileOptions, Schedule, Steps
from flagscale_perf.spine.errors import PerfError

# The wheel for CPUs has another name than the one by which `vllm bench` asks for its version.
BENCH = (
    "from vllm.benchmarks import latency; from vllm.utils.argparse_utils import FlexibleArgumentParser as P;"
    " parser = P(); latency.add_cli_args(parser); latency.main(parser.parse_args())"
)
OUTPUT = 8  # tokens that each request makes
WORK = "vllm"  # folder beside the run file


class Load(NamedTuple):
    """What is profiled.

    Attributes:
        model: directory of a configuration, and of weights if there are some; None for the built-in one.
        steps, warmup: profiled steps of each phase, and those before.
        tokens: of a prompt; batch: prompts at a time; longest: tokens of a sequence.
        tensor, pipeline: sizes.
    """

    model: str | None
    steps: int
    warmup: int
    tokens: int
    batch: int
    longest: int
    tensor: int
    pipeline: int


def check(load: Load) -> None:
    """Raises PerfError for what cannot be run."""
    if load.tokens + OUTPUT > load.longest:
        raise PerfError(
            f"--num-tokens {load.tokens} and {OUTPUT} of output are more than --max-seq-len {load.longest};"
            " raise the latter"
        )
    found, ranks = devices(), load.tensor * load.pipeline
    if ranks > found.count:
        raise PerfError(
            f"--tp {load.tensor} --pp {load.pipeline} need {ranks} {found.what}s, and there are {found.count}"
        )


def profile_vllm(load: Load, directory: Path) -> None:
    """Runs it; the run file is in the directory. Raises PerfError with vLLM's own reason where it fails."""
    check(load)
    work = directory / WORK
    work.mkdir(parents=True, exist_ok=True)
    model = read_model(load.model)
    served = write_served(model, work / "model")
    first = max(1, load.warmup)  # step 0 of a phase is never profiled
    options = ProfileOptions(Steps(first, first + load.steps - 1), directory.absolute())
    schedule = Schedule.of(options)
    assert schedule is not None
    words = vllm_words(
        model_options(model, served)
        | {
            "tensor-parallel-size": load.tensor,
            "pipeline-parallel-size": load.pipeline,
            "input-len": load.tokens,
            "output-len": OUTPUT,
            "batch-size": load.batch,
            "num-iters-warmup": first,
            "num-iters": schedule.length + 1,
            "max-model-len": load.longest,
            "enforce-eager": True,
            "disable-detokenize": True,
        }
    )
    before, log = set(run_files_in(directory)), work / "vllm.log"
    with log.open("wb") as said:
        code = subprocess.call(
            [sys.executable, "-c", BENCH, *words],
            env=_environment(load, options, work),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    if code:
        raise PerfError(f"vLLM ended with exit code {code}: {last_error(log)} ({log})")
    if not set(run_files_in(directory)) - before:
        raise PerfError(f"vLLM ended without a profile; see {log}")


def _environment(load: Load, options: ProfileOptions, work: Path) -> dict[str, str]:
    environment, found, ranks = clean_environment(), devices(), load.tensor * load.pipeline
    path = filter(None, (str(plugin_path(work / "plugin")), environment.get("PYTHONPATH")))
    cores = rank_cores(ranks, ranks, found.names)
    on_cores = {"VLLM_CPU_OMP_THREADS_BIND": cores, "VLLM_CPU_KVCACHE_SPACE": "1"}
    bound = {} if found.are_gpus else on_cores
    return environment | bound | options.variables | {"PYTHONPATH": ":".join(path)}
