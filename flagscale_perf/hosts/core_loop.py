"""What all loops over Megatron-Core's own models have in common: the model is read from the module that was
built, the rest comes from the adapter.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import flagscale_perf
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.hosts.timers import can_mark_phases
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.units import print_line
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import ONE_F_ONE_B
from flagscale_perf.training.work import Microbatch

GPT_MODULE = "megatron.core.models.gpt.gpt_model"
MICROBATCHES_MODULE = "megatron.core.num_microbatches_calculator"
SPECS_MODULE = "megatron.core.models.gpt.experimental_attention_variant_module_specs"
PARALLEL_MODULE = "megatron.core.parallel_state"


# FlagScale's loop, from its root: its own until 0.8, in its copy of Megatron's training package since.
_OWN_LOOP = ("flagscale", "train", "train.py")
_COPIED_LOOP = ("flagscale", "train", "megatron", "training", "training.py")


@dataclass(frozen=True)
class Training:
    """The training that a loop is about to run.

    Attributes:
        seq_length: tokens of one sample.
        micro_batch_size: samples of one forward pass of one data-parallel rank.
        global_batch_size: samples of one iteration, over all data-parallel ranks.
        train_iters: iterations of the whole training; None if unknown.
        iteration: iterations finished before, by the checkpoint that training goes on from.
        consumed_samples: samples consumed before.
        tensorboard_dir: where the loop writes TensorBoard scalars of its own; None if nowhere.
        model: for a model that is not of Megatron-Core: its sizes in Megatron's argument names or as a
            `config.json` of Hugging Face has them, and besides, by Megatron's names, `bf16` or `fp16` and the
            `..._model_parallel_size`s above 1. None: the model's own configuration says it.
        host: name and version of what the loop belongs to, where that is not Megatron-Core.
    """

    seq_length: int
    micro_batch_size: int
    global_batch_size: int
    train_iters: int | None = None
    iteration: int = 0
    consumed_samples: int = 0
    tensorboard_dir: str | None = None
    model: Mapping[str, Any] | None = None
    host: str = ""


class CoreLoop:
    """The part of `hooks.Loop` that does not depend on who owns the loop.

    Args:
        model: the model, or its chunks; wrapped for data parallelism or mixed precision or not.
        training: what the loop is about to do.
        rehearsing: torch.cuda calls land on the CPU.
    """

    def __init__(self, model: Any, training: Training, rehearsing: bool) -> None:
        self._module = _unwrapped(model)
        self.training = training
        self.rehearsing = rehearsing

    @staticmethod
    def say(line: str) -> None:
        """Only rank 0 has anything to say."""
        print_line(line)

    def rank(self) -> int:
        """The rank in torch.distributed if that runs, else as torchrun set it."""
        distributed = _distributed()
        return int(distributed.get_rank() if distributed else os.environ.get("RANK", "0"))

    def stage(self) -> int:
        """The pipeline stage that Megatron-Core gives this rank."""
        return pipeline_stage()

    def lockstep(self) -> int:
        """The number of the group that works in lockstep; the rank itself where no groups are made."""
        return lockstep_group(self.rank())

    def microbatch(self) -> Microbatch:
        """As the training says it."""
        training = self.training
        return Microbatch(chunks_of(self._module.config), training.micro_batch_size, training.seq_length)

    def config(self) -> PerfConfig:
        """The options of the environment, the only ones without Megatron's arguments."""
        return PerfConfig.from_args({})

    def device_types(self) -> dict[str, int]:
        """Empty, as types are not known here: all ranks count as one."""
        return {}

    def names_phases(self) -> bool:
        """Whether Megatron-Core's timers can mark its phases."""
        return can_mark_phases(self.timers())

    def timers(self) -> Any:
        """The timers of the model's configuration; None where it has none."""
        return getattr(self._module.config, "timers", None)

    def model_args(self) -> dict[str, Any]:
        """The configuration under Megatron's names. Raises PerfError for what cannot be counted."""
        module, config = self._module, self._module.config
        gpt = sys.modules.get(GPT_MODULE)
        if gpt is None or not isinstance(module, gpt.GPTModel):
            raise PerfError(
                f"model: {type(module).__name__} is not a GPTModel of Megatron-Core; only that can be counted"
            )
        refuse_frozen(module)
        return {
            **vars(config),
            "padded_vocab_size": module.vocab_size,
            "max_position_embeddings": module.max_sequence_length,
            "position_embedding_type": module.position_embedding_type,
            "untie_embeddings_and_output_weights": not module.share_embeddings_and_output_weights,
            "micro_batch_size": self.training.micro_batch_size,
            "dsa_absorbed": absorbs_sparse_attention(),
        }

    @property
    def model_config(self) -> Any:
        """Of the model that was built."""
        return self._module.config

    def _facts(self, host: str, device: str, missing: Sequence[str]) -> RunFacts:
        return facts_of(
            self._module.config,
            self.training,
            host=host,
            world_size=_world_size(),
            data_parallel=self.data_parallel_size(),
            device=device,
            rehearsal=self.rehearsing,
            missing=list(missing),
        )

    def data_parallel_size(self) -> int:
        """Replicas of the model: what is left of the world by tensor, pipeline and context parallelism."""
        config = self._module.config
        model_parallel = (
            config.tensor_model_parallel_size
            * config.pipeline_model_parallel_size
            * config.context_parallel_size
        )
        return _world_size() // int(model_parallel)


def refuse_frozen(module: Any) -> None:
    """Raises PerfError for a model of which some weights are not trained."""
    weights = module.named_parameters()
    if frozen := next((name for name, weight in weights if not weight.requires_grad), None):
        raise PerfError(
            f"model: {frozen} is frozen; adapters and frozen weights of this host are not counted"
        )


def absorbs_sparse_attention() -> bool | None:
    """Whether the host's Megatron-Core multiplies the up-projections into the core of sparse attention; None
    where it has not loaded the specification of such layers.
    """
    specs = sys.modules.get(SPECS_MODULE)
    return None if specs is None else hasattr(specs, "AbsorbedMLASelfAttention")


def pipeline_stage() -> int:
    """This rank's, from 0; 0 where Megatron-Core has made no groups."""
    groups = parallel_state()
    return int(groups.get_pipeline_model_parallel_rank()) if groups else 0


def lockstep_group(rank: int) -> int:
    """See `RankIdentity`; `rank` where Megatron-Core has made no groups."""
    groups = parallel_state()
    if not groups:
        return rank
    return pipeline_stage() * int(groups.get_data_parallel_world_size()) + int(
        groups.get_data_parallel_rank()
    )


def parallel_state() -> Any:
    """Megatron-Core's module of that name; None where it has made no groups."""
    groups = sys.modules.get(PARALLEL_MODULE)
    return groups if groups is not None and groups.model_parallel_is_initialized() else None


def num_microbatches() -> int:
    """Micro-batches that a data-parallel rank takes in a step now, by Megatron-Core's calculator."""
    return int(microbatch_counter()())


def microbatch_counter() -> Callable[[], int]:
    """The function of that calculator which returns their number."""
    counter: Callable[[], int] = sys.modules[MICROBATCHES_MODULE].get_num_microbatches
    return counter


def pipeline_schedule(config: Any) -> str | None:
    """The schedule under these arguments or this model configuration; None without a pipeline."""
    if (config.pipeline_model_parallel_size or 1) < 2:
        return None
    if getattr(config, "use_dualpipev", False):
        return "dualpipev"
    return (
        "interleaved"
        if (getattr(config, "virtual_pipeline_model_parallel_size", None) or 1) > 1
        else ONE_F_ONE_B
    )


def chunks_of(config: Any) -> int:
    """Parts of the model on this rank, under these arguments or this configuration, that a micro-batch goes
    through one after another; 0 under a schedule that does not mark them all.
    """
    if pipeline_schedule(config) == "dualpipev":
        return 0
    return getattr(config, "virtual_pipeline_model_parallel_size", None) or 1


def facts_of(config: Any, training: Training, **of_host: Any) -> RunFacts:
    """Facts of a run under Megatron's arguments or a model's configuration, which have the same names.

    `of_host`: the facts that neither they nor `training` hold. Peak and model are found out later.
    """
    directory = training.tensorboard_dir
    if directory and "://" in directory:
        lack = f"curves beside the host's ({directory} is an address; they are in --perf-log-dir)"
        directory, of_host["missing"] = None, [*of_host["missing"], lack]
    return RunFacts(
        package_version=flagscale_perf.__version__,
        script=os.path.basename(sys.argv[0]),
        hostname=os.uname().nodename,
        pid=os.getpid(),
        restart_count=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        tensor_parallel=config.tensor_model_parallel_size,
        pipeline_parallel=config.pipeline_model_parallel_size,
        context_parallel=getattr(config, "context_parallel_size", None),
        expert_parallel=getattr(config, "expert_model_parallel_size", None),
        pipeline_schedule=pipeline_schedule(config),
        dtype=dtype_of(config),
        seq_length=training.seq_length,
        micro_batch_size=training.micro_batch_size,
        global_batch_size=training.global_batch_size,
        train_iters=training.train_iters,
        resume_iteration=training.iteration,
        tensorboard_dir=os.path.abspath(directory) if directory else None,
        peak_flop_per_s=None,
        peak_source="",
        flops_convention="causal_half",
        model_family=None,
        model=None,
        **of_host,
    )


def dtype_of(config: Any) -> str:
    """The type in which a model with these arguments or this configuration computes."""
    return "bf16" if config.bf16 else "fp16" if config.fp16 else "fp32"


def version_of(distribution: str, package: ModuleType | None = None) -> str:
    """The version of what is installed, or of `package` where that was imported from elsewhere, as from its
    sources; "unknown" if neither says one.
    """
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        installed = importlib.metadata.distribution(distribution)
        if package is None or is_part_of(installed, package):
            return installed.version
    return str(getattr(package, "__version__", "unknown"))


def is_part_of(installed: importlib.metadata.Distribution, package: ModuleType) -> bool:
    """Whether `package` was imported from what is installed under that name."""
    place = Path(str(installed.locate_file("/".join(package.__name__.split(".")))))
    return any(Path(path).resolve() == place.resolve() for path in getattr(package, "__path__", ()))


def host_name(source: Path, core_version: str) -> str:
    """Such as "FlagScale 0.8.0", "FlagScale 1.0.0 (commit 69487e3, core 0.17.1)" or
    "Megatron-LM (core 0.15.0)".

    Args:
        source: the loop's file.
        core_version: of the Megatron-Core that it runs with.
    """
    root = flagscale_root(source)
    if root is None:
        return f"Megatron-LM (core {core_version})"
    if root.name == "flag_scale":  # of the package index, which brings its own Megatron-LM along
        return f"FlagScale {version_of('flag-scale')}"
    commit = commit_of(root)
    details = [*([f"commit {commit}"] if commit else []), f"core {core_version}"]
    return f"FlagScale {_version_of_tree(root)} ({', '.join(details)})"


def flagscale_root(source: Path) -> Path | None:
    """The root of the FlagScale whose loop this file is; None for another loop."""
    for loop in (_OWN_LOOP, _COPIED_LOOP):
        if source.parts[-len(loop) :] == loop:
            return source.parents[len(loop) - 1]
    return None


def _version_of_tree(root: Path) -> str:
    with contextlib.suppress(OSError, ValueError):
        project = (root / "pyproject.toml").read_text(encoding="utf-8")
        if found := re.search(r'^version *= *"([^"]+)"', project, re.MULTILINE):
            return found[1]
    return "unknown"


def commit_of(root: Path) -> str | None:
    """The first seven digits of the commit that a checkout is at; None for what is no checkout."""
    git = root / ".git"
    with contextlib.suppress(OSError, ValueError):
        if git.is_file():  # a submodule or another work tree
            git = root / git.read_text(encoding="utf-8").removeprefix("gitdir: ").strip()
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref: "):
            return head[:7] or None
        ref = head.removeprefix("ref: ")
        common = git / "commondir"  # where another work tree has its branches
        git = git / common.read_text(encoding="utf-8").strip() if common.is_file() else git
        if (git / ref).is_file():
            return (git / ref).read_text(encoding="utf-8")[:7] or None
        for line in (git / "packed-refs").read_text(encoding="utf-8").splitlines():
            if line.endswith(f" {ref}"):
                return line[:7]
    return None


def _world_size() -> int:
    distributed = _distributed()
    return int(distributed.get_world_size() if distributed else os.environ.get("WORLD_SIZE", "1"))


def _distributed() -> Any:
    import torch.distributed

    running = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed if running else None


def _unwrapped(model: Any) -> Any:
    module = model[0] if isinstance(model, list | tuple) else model
    while hasattr(module, "module"):
        module = module.module
    return module
