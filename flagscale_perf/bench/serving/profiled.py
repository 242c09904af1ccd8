"""Steps of vLLM profiled while its own `bench latency` runs, each rank in its worker, and what collectives
take in them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from flagscale_perf.analysis.job import open_session, run_files_in
from flagscale_perf.bench.serving.model import model_options, read_model, vllm_words, write_served
from flagscale_perf.bench.serving.server import last_error
from flagscale_perf.bench.serving.vllm_python import clean_environment, devices, plugin_path, rank_cores
from flagscale_perf.profile.options import ProfileOptions, Schedule, Steps
from flagscale_perf.spine.averages import median
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.errors import PerfError

if TYPE_CHECKING:
    from flagscale_perf.profile.analysis.source import Rank
    from flagscale_perf.profile.analysis.sums import PhaseSums

# The wheel for CPUs has another name than the one by which `vllm bench` asks for its version.
BENCH = (
    "from vllm.benchmarks import latency; from vllm.utils.argparse_utils import FlexibleArgumentParser as P;"
    " parser = P(); latency.add_cli_args(parser); latency.main(parser.parse_args())"
)
OUTPUT = 8  # tokens that each request makes
WORK = "vllm"  # folder beside the run file
UNSPLIT = 0.01  # of communication that may be neither waiting nor transfer
WRITER_S, POLL_S = 20.0, 0.1  # a separate process writes the profile


class Load(NamedTuple):
    """What is profiled.

    Attributes:
        model: directory of a configuration, and of weights if there are some; None for the built-in one.
        steps, warmup: profiled steps of each phase, and those before.
        tokens: of a prompt; batch: prompts at a time; longest: tokens of a sequence.
        tensor, pipeline: sizes.
        python: that has vLLM.
        widest: ranks of the job that this one is compared with: each rank has as many cores as one of those.
    """

    model: str | None
    steps: int
    warmup: int
    tokens: int
    batch: int
    longest: int
    tensor: int
    pipeline: int
    python: str = sys.executable
    widest: int = 0


class Window(NamedTuple):
    """The profiled steps of a phase, in seconds a step of a mean rank.

    Attributes:
        total: a profiled step; clean: the median one that is not profiled, None without any.
        waiting, transfer: of it, in collectives while nothing else is done: until all ranks are there, and
            from then on. None for both where not every rank's side is known.
        communication: both, or what is known of them together.
    """

    total: float
    clean: float | None
    waiting: float | None
    transfer: float | None
    communication: float


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
            [load.python, "-c", BENCH, *words],
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
    cores = rank_cores(ranks, load.widest or ranks, found.names)
    on_cores = {"VLLM_CPU_OMP_THREADS_BIND": cores, "VLLM_CPU_KVCACHE_SPACE": "1"}
    bound = {} if found.are_gpus else on_cores
    return environment | bound | options.variables | {"PYTHONPATH": ":".join(path)}


def read_windows(directory: Path) -> Mapping[str, Window]:
    """The windows of a profile by phase, once its writer has ended. Raises PerfError if there is none."""
    from flagscale_perf.profile.analysis.instrument import read_report  # loads numpy

    session = open_session(directory)
    end_s = time.monotonic() + WRITER_S
    while session.is_live() and time.monotonic() < end_s:
        time.sleep(POLL_S)
    found = read_report(session)
    return {phase: _window(found.profile.ranks, sums) for phase, sums in found.sums.items()}


def _window(ranks: Sequence[Rank], sums: PhaseSums) -> Window:
    from flagscale_perf.profile.analysis.communication import RankCollectives, operations_of
    from flagscale_perf.profile.analysis.waits import waits_of

    sides, clean = [], list[float]()
    for rank in ranks:
        numbers = set(rank.steps["number"][rank.steps["phase"] == sums.phase].tolist())
        own = [one for one in rank.collectives.records() if one["step"] in numbers]
        sides.append(RankCollectives(rank.rank, rank.clock, rank.place, own))
        clean += rank.clean["total_ns"][rank.clean["phase"] == sums.phase].tolist()
    waits = waits_of(operations_of(sides))
    per_s = NS_PER_S * sum(one.steps for one in sums.books.values())
    waiting = sum(one.exposed_waiting_ns for one in waits) / per_s
    transfer = sum(one.exposed_transfer_ns for one in waits) / per_s
    whole = sums.mean.communication / NS_PER_S
    is_split = abs(whole - waiting - transfer) <= UNSPLIT * whole
    return Window(
        sums.mean.total / NS_PER_S,
        median(clean) / NS_PER_S if clean else None,
        waiting if is_split else None,
        transfer if is_split else None,
        whole,
    )
