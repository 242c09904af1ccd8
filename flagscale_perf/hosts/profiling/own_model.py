"""A Hugging Face model with random weights, made of a configuration, and its steps profiled here.

Nothing is downloaded: a configuration is a directory with a config.json, or the small Qwen3 that is built in.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flagscale_perf.profile.options import ProfileOptions, Steps
from flagscale_perf.profile.schedule import Schedule
from flagscale_perf.spine.delays import Delays
from flagscale_perf.spine.errors import PerfError

if TYPE_CHECKING:
    from flagscale_perf.profile.rank import Rank

SMALL_QWEN3: dict[str, Any] = {
    "vocab_size": 4096, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "tie_word_embeddings": False,
}  # fmt: skip
SEED = 1234
TRAIN, GENERATE = "train", "generate"
ROOF_S = 0.5  # for each roof
HOST = "huggingface"
TENSOR, PIPELINE = "tp", "pp"  # names of groups


@dataclass(frozen=True)
class OwnRun:
    """What is run.

    Attributes:
        model: directory of a configuration; None for the built-in one.
        steps, warmup: profiled steps, and those before the first one.
        tokens: of a sequence; with `GENERATE`, those of the prompt.
        batch: sequences.
        longest: sequence that the model is made for.
        mode: `TRAIN` or `GENERATE`.
        directory: of the run file.
        tensor, pipeline: ranks that share each layer, and stages that share the layers.
        causal: delays that are planted behind the profiled steps, as `Delays` writes them; "": none.
    """

    model: Path | None
    steps: int
    warmup: int
    tokens: int
    batch: int
    longest: int
    mode: str
    directory: Path
    tensor: int = 1
    pipeline: int = 1
    causal: str = ""

    @property
    def ranks(self) -> int:
        """Processes."""
        return self.tensor * self.pipeline


Step = Callable[[Any, int], None]


def check(run: OwnRun) -> None:
    """Raises PerfError for what cannot be run."""
    import torch

    if run.tokens > run.longest:
        raise PerfError(
            f"--num-tokens {run.tokens} is more than --max-seq-len {run.longest}; raise the latter"
        )
    if run.pipeline > 1 and run.mode == GENERATE:
        raise PerfError(
            f"--pp {run.pipeline} --mode {GENERATE}: stages of a pipeline have no cache of keys and values"
            " here; leave --mode out to profile training, or profile vLLM with --pipeline-parallel-size"
        )
    cards = torch.cuda.device_count()
    if torch.cuda.is_available() and run.ranks > cards:
        raise PerfError(
            f"--tp {run.tensor} --pp {run.pipeline} need {run.ranks} devices, and there are {cards};"
            " give smaller ones, or hide the devices (CUDA_VISIBLE_DEVICES=) to use the CPU"
        )


def profile_own(run: OwnRun) -> None:
    """Runs and profiles it, or one rank of it where torch.distributed runs. Raises PerfError for a model that
    cannot be made, or not be divided.
    """
    import torch

    from flagscale_perf.device.roofs import kind_of_device, roofs
    from flagscale_perf.profile.profiler import Profiler

    check(run)
    device = torch.device(kind_of_device(torch))
    torch.manual_seed(SEED)
    model = made_model(run.model, run.longest).to(device)
    meshes = _meshes(run, device.type) if run.ranks > 1 else {}
    part, rank = _part(model, run, meshes)
    step = _training(part, run, meshes, device) if run.mode == TRAIN else _forward(part, run, device)
    first = run.warmup + 1
    options = ProfileOptions(
        Steps(first, first + run.steps - 1), run.directory.absolute(),
        causal=Delays.parse(run.causal) if run.causal else None,
    )  # fmt: skip
    last = _last(run, options, rank)
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    measured = roofs(torch, (dtype,), ROOF_S)  # before the first step: it measures alone
    with Profiler(part, options, rank=rank, roofs=measured) as profiler:
        for iteration in range(1, last + 1):
            step(profiler, iteration)


def _last(run: OwnRun, options: ProfileOptions, rank: Rank) -> int:
    """The last step; says so on rank 0 where steps are slowed down on purpose."""
    schedule = Schedule.of(options)
    assert schedule is not None
    if options.causal is None:
        return run.warmup + schedule.length
    if rank.number == 0:
        print(schedule.warning(options.causal), flush=True)
    return schedule.causal_first + options.causal.length - 1


def _meshes(run: OwnRun, device: str) -> dict[str, Any]:
    """This rank's, by what they are for: those of one layer are neighbours."""
    import torch
    from torch import distributed
    from torch.distributed.device_mesh import DeviceMesh

    numbers = torch.arange(run.ranks).reshape(run.pipeline, run.tensor)
    found: dict[str, Any] = {}
    for name, lines in ((TENSOR, numbers.tolist()), (PIPELINE, numbers.T.tolist())):
        for ranks in lines:
            group = distributed.new_group(ranks, group_desc=name)
            if distributed.get_rank() in ranks:
                found[name] = DeviceMesh.from_group(group, device, mesh_dim_names=(name,))
    return found


def _part(model: Any, run: OwnRun, meshes: Mapping[str, Any]) -> tuple[Any, Rank]:
    """What this rank has of the model, and who it is."""
    from flagscale_perf.profile.rank import Rank

    if not meshes:
        return model, Rank(host=HOST)
    from flagscale_perf.hosts.profiling.split_model import Stage, split_tensors

    part = model if run.pipeline == 1 else Stage(model, meshes[PIPELINE].get_local_rank(), run.pipeline)
    if run.tensor > 1:
        split_tensors(model, meshes[TENSOR])
    rank = Rank(
        tensor=meshes[TENSOR].get_local_rank(), tensor_size=run.tensor,
        pipeline=meshes[PIPELINE].get_local_rank(), pipeline_size=run.pipeline,
        host=HOST, model=type(model).__name__,
    )  # fmt: skip
    return part, rank


def made_model(config: Path | None, longest: int, dtype: Any = None) -> Any:
    """The model, with random weights. Raises PerfError for what is no configuration.

    Args:
        config: a directory with a config.json, or such a file; None for the small Qwen3 that is built in.
        longest: sequence that the built-in one is made for.
        dtype: of its parameters; None for what the configuration says.
    """
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise PerfError(f"transformers cannot be imported ({error}): pip install transformers") from None
    try:
        if config is None:
            made = transformers.Qwen3Config(**SMALL_QWEN3, max_position_embeddings=longest)
        else:
            made = transformers.AutoConfig.from_pretrained(str(config), local_files_only=True)
        typed = {} if dtype is None else {"dtype": dtype}
        return transformers.AutoModelForCausalLM.from_config(made, **typed)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().split("\n")[0]
        raise PerfError(f"--model {config}: no model can be made of it ({first})") from None


def _training(model: Any, run: OwnRun, meshes: Mapping[str, Any], device: Any) -> Step:
    ids = _ids(model, run, device)
    model.train()
    optimizer, passes = _optimizer(model, meshes), _passes(model, run, meshes, device)

    def step(profiler: Any, iteration: int) -> None:
        """Forward, backward, optimizer."""
        with profiler.step(iteration, "train", samples=run.batch, tokens=ids.numel()):
            passes(ids)
            optimizer.step()
            optimizer.zero_grad()

    return step


def _optimizer(model: Any, meshes: Mapping[str, Any]) -> Any:
    import torch

    if not meshes:
        return torch.optim.AdamW(model.parameters(), lr=1e-4)
    from flagscale_perf.hosts.profiling.split_model import groups_of

    return torch.optim.AdamW(groups_of(model), lr=1e-4)


def _passes(model: Any, run: OwnRun, meshes: Mapping[str, Any], device: Any) -> Callable[[Any], None]:
    """Forward and backward of a batch."""
    if run.pipeline > 1:
        from flagscale_perf.hosts.profiling.split_model import Pipeline

        return Pipeline(model, meshes[PIPELINE], run.batch, device).step

    def passes(ids: Any) -> None:
        model(input_ids=ids, labels=ids).loss.backward()

    return passes


def _ids(model: Any, run: OwnRun, device: Any) -> Any:
    """The same on each rank."""
    import torch

    config = model.module.config if run.pipeline > 1 else model.config
    generator = torch.Generator().manual_seed(SEED)
    return torch.randint(0, config.vocab_size, (run.batch, run.tokens), generator=generator).to(device)


def _forward(model: Any, run: OwnRun, device: Any) -> Step:
    import torch

    model.eval()
    ids = _ids(model, run, device)

    def step(profiler: Any, iteration: int) -> None:
        """A prefill, and the decoding of one token: two kinds of steps, each with windows of its own."""
        with torch.no_grad():
            with profiler.step(iteration, "prefill", samples=run.batch, tokens=ids.numel()):
                out = model(input_ids=ids, use_cache=True)
            following = out.logits[:, -1:].argmax(-1)
            with profiler.step(iteration, "decode", samples=run.batch, tokens=run.batch):
                model(input_ids=following, past_key_values=out.past_key_values, use_cache=True)

    return step
