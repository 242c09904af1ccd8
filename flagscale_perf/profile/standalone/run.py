"""Steps of a model with random weights, profiled in this process or on several ranks of this machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing

from flagscale_perf.device.roofs import kind_of_device, roofs
from flagscale_perf.profile.options import ProfileOptions, Schedule, Steps
from flagscale_perf.profile.profiler import Profiler
from flagscale_perf.profile.rank import Rank
from flagscale_perf.profile.standalone.model import TRAIN, Run, cache_name, divided, made_model
from flagscale_perf.spine.errors import PerfError

SEED = 1234
ROOF_S = 0.5  # for each roof
REFUSED = "refused"  # file in which a rank leaves the user's mistake that has ended it
Step = Callable[[Any, int], None]


def check(run: Run) -> None:
    """Raises PerfError for what cannot be run."""
    if run.tokens > run.longest:
        raise PerfError(
            f"--num-tokens {run.tokens} is more than --max-seq-len {run.longest}; raise the latter"
        )
    if run.pipeline > 1 and run.mode == TRAIN:
        raise PerfError(
            f"--pp {run.pipeline} --mode {TRAIN}: transformers' pipeline only generates; leave --mode out, or"
            " profile the training in FlagScale (--perf-profile-steps)"
        )
    cards = torch.cuda.device_count()
    if torch.cuda.is_available() and run.ranks > cards:
        raise PerfError(
            f"--tp {run.tensor} --pp {run.pipeline} need {run.ranks} devices, and there are {cards};"
            " give smaller ones, or hide the devices (CUDA_VISIBLE_DEVICES=) to use the CPU"
        )


def profile(run: Run) -> None:
    """Runs and profiles the model, on processes of their own if it has several ranks. Raises PerfError for a
    model that cannot be made or not be divided, and where a rank fails; the other ranks are ended then.
    """
    check(run)
    if run.ranks == 1:
        _profile(run)
        return
    with tempfile.TemporaryDirectory(prefix="flagscale_perf_") as scratch:
        try:
            multiprocessing.spawn(_as_rank, (run, scratch), run.ranks)
        except (multiprocessing.ProcessRaisedException, multiprocessing.ProcessExitedException) as error:
            refused = Path(scratch) / REFUSED
            if refused.exists():
                raise PerfError(refused.read_text(encoding="utf-8")) from None
            raise PerfError(f"rank {error.error_index} has ended: {str(error).strip()[-2000:]}") from None


def _as_rank(rank: int, run: Run, scratch: str) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(run.ranks)}
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(rank)
        backend = "nccl"
    elif "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // run.ranks))
    distributed.init_process_group(
        backend, init_method=f"file://{scratch}/store", rank=rank, world_size=run.ranks
    )
    try:
        _profile(run)
        distributed.barrier()  # the first to end would close what the others still send over
    except PerfError as error:
        (Path(scratch) / REFUSED).write_text(str(error), encoding="utf-8")
        raise SystemExit(2) from None
    finally:
        distributed.destroy_process_group()


def _profile(run: Run) -> None:
    device = torch.device(kind_of_device(torch))
    torch.manual_seed(SEED)
    model, rank = made_model(run.model, run.longest).to(device), Rank(host="huggingface")
    if run.ranks > 1:
        model = divided(model, run.tensor, run.pipeline)
        stage, place = divmod(rank.number, run.tensor)
        rank = Rank(
            tensor=place,
            tensor_size=run.tensor,
            pipeline=stage,
            pipeline_size=run.pipeline,
            host="huggingface",
        )
    step = (_training if run.mode == TRAIN else _generating)(model, run, device)
    options = ProfileOptions(Steps(run.warmup + 1, run.warmup + run.steps), run.directory.absolute())
    schedule = Schedule.of(options)
    assert schedule is not None
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    measured = roofs(torch, (dtype,), ROOF_S)  # before the first step: it measures alone
    with Profiler(model, options, rank=rank, roofs=measured) as profiler:
        for iteration in range(1, run.warmup + schedule.length + 1):
            step(profiler, iteration)


def _training(model: Any, run: Run, device: Any) -> Step:
    ids = _ids(model, run, device)
    model.train()
    optimizer = torch.optim.AdamW(_groups_of(model), lr=1e-4)

    def step(profiler: Any, iteration: int) -> None:
        with profiler.step(iteration, "train", samples=run.batch, tokens=ids.numel()):
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return step


def _groups_of(model: Any) -> list[dict[str, Any]]:
    """Groups of parameters: an optimizer takes no sharded and whole ones in one operation."""
    groups: dict[bool, list[Any]] = {}
    for parameter in model.parameters():
        groups.setdefault(hasattr(parameter, "placements"), []).append(parameter)
    return [{"params": group} for group in groups.values()]


def _ids(model: Any, run: Run, device: Any) -> Any:
    """The batch of random tokens, the same on each rank."""
    generator = torch.Generator().manual_seed(SEED)
    return torch.randint(0, model.config.vocab_size, (run.batch, run.tokens), generator=generator).to(device)


def _generating(model: Any, run: Run, device: Any) -> Step:
    model.eval()
    ids, kept = _ids(model, run, device), cache_name(model)

    def step(profiler: Any, iteration: int) -> None:
        with torch.no_grad():
            with profiler.step(iteration, "prefill", samples=run.batch, tokens=ids.numel()):
                out = model(input_ids=ids, use_cache=True)
            following, cache = out.logits[:, -1:].argmax(-1), getattr(out, kept)
            with profiler.step(iteration, "decode", samples=run.batch, tokens=run.batch):
                model(input_ids=following, use_cache=True, **{kept: cache})

    return step
