"""Hugging Face's `Trainer` (transformers): an unmodified script, whose training is known like Megatron's.

A step is from the host's call for its micro-batches, which loads them, to the end that it tells its
callbacks. What is counted is in the batches as they are there: no tensor on a device is read.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import flagscale_perf
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.flops_calculator import args_from_config
from flagscale_perf.hooks import StepNumbers, TrainingHooks
from flagscale_perf.hosts import core_loop
from flagscale_perf.hosts.patching import Patches, Wrapper
from flagscale_perf.hosts.timers import phase_timer, time_mark
from flagscale_perf.hosts.work import Documents, RankCounter, lengths_of
from flagscale_perf.hosts.wrappers import ending, paused, phased
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.units import for_stdout
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.work import AS_RANK_0, Microbatch

TRAINER_MODULE = "transformers.trainer"
# What of the Trainer must be there, as since transformers 4.46; without one of them it is left alone.
POINTS = ("train", "get_batch_samples", "compute_loss", "evaluate", "_save_checkpoint")
_PADDING = "padding, where there is any (it counts as tokens)"
_RECOMPUTED = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


class TrainerLoop:
    """`hooks.Loop` for one call of `Trainer.train`.

    Args:
        trainer: the host's.
        batches: the micro-batches of this rank's first step.
        config: the options in force.
    """

    def __init__(self, trainer: Any, batches: list[Any], config: PerfConfig) -> None:
        self._trainer, self._config = trainer, config
        self._model = trainer.accelerator.unwrap_model(trainer.model)
        self.rehearsing = False
        self._consumed = self._samples = self._tokens = self._microbatches = 0
        self.is_restarting = any("position_ids" in batch for batch in batches)
        shape = _tokens_of(batches[0]).shape if batches and _tokens_of(batches[0]) is not None else None
        self._rows, self._width = (int(shape[0]), int(shape[1])) if shape and len(shape) == 2 else (0, 0)

    @property
    def data_parallel(self) -> int:
        """Ranks that have batches of their own."""
        return int(self._trainer.args.world_size) // int(getattr(self._model, "_tp_size", None) or 1)

    def rank(self) -> int:
        """As the host's launcher set it."""
        return int(self._trainer.args.process_index)

    def stage(self) -> int:
        """There is no pipeline."""
        return 0

    def lockstep(self) -> int:
        """Each rank by itself."""
        return self.rank()

    def microbatch(self) -> Microbatch:
        """Samples may differ in length."""
        return Microbatch(1)

    def config(self) -> PerfConfig:
        """Those of the environment."""
        return self._config

    def device_types(self) -> Mapping[str, int]:
        """Not known: all ranks count as one type."""
        return {}

    def model_args(self) -> dict[str, Any]:
        """Of the model's configuration, in Megatron's names. Raises PerfError for what cannot be counted."""
        if not hasattr(self._model, "config") or not self._width:
            raise PerfError(f"model: {type(self._model).__name__} is no language model of transformers")
        weights = self._model.named_parameters()
        if frozen := next((name for name, weight in weights if not weight.requires_grad), None):
            raise PerfError(
                f"model: {frozen} is frozen; adapters and frozen weights of this host are not counted"
            )
        recomputed = _RECOMPUTED if self._trainer.args.gradient_checkpointing else {}
        return {
            **args_from_config(self._model.config.to_dict()),
            **recomputed,
            "micro_batch_size": self._rows,
            "seq_length": self._width,
        }

    def facts(self, device: str) -> RunFacts:
        """What the host's arguments and its first batch say."""
        args, parallel = self._trainer.args, self.data_parallel
        batch = self._rows * args.gradient_accumulation_steps * parallel
        return RunFacts(
            package_version=flagscale_perf.__version__,
            host=f"transformers {core_loop.version_of('transformers')} Trainer",
            script=os.path.basename(sys.argv[0]),
            hostname=os.uname().nodename,
            pid=os.getpid(),
            world_size=args.world_size,
            restart_count=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
            tensor_parallel=args.world_size // parallel,
            pipeline_parallel=1,
            data_parallel=parallel,
            context_parallel=None,
            expert_parallel=None,
            pipeline_schedule=None,
            device=device,
            rehearsal=self.rehearsing,
            dtype=self._dtype(),
            peak_flop_per_s=None,
            peak_source="",
            flops_convention="causal_half",
            model_family=None,
            model=None,
            seq_length=self._width or None,
            micro_batch_size=self._rows or None,
            global_batch_size=batch or None,
            train_iters=self._trainer.state.max_steps,
            resume_iteration=self._trainer.state.global_step,
            tensorboard_dir=None,
            missing=[_PADDING, *([f"work of {AS_RANK_0}"] if parallel > 1 else [])],
        )

    def _dtype(self) -> str:
        args = self._trainer.args
        name = str(getattr(self._model, "dtype", ""))
        is_bf16, is_fp16 = args.bf16 or name == "torch.bfloat16", args.fp16 or name == "torch.float16"
        return "bf16" if is_bf16 else "fp16" if is_fp16 else "fp32"

    def position(self) -> tuple[int, int]:
        """By the host's own count of steps."""
        return self._trainer.state.global_step, self._consumed

    def loaded(self, batches: list[Any]) -> None:
        """The micro-batches of the next step."""
        self._microbatches = len(batches)
        tokens = [own for batch in batches if (own := _tokens_of(batch)) is not None]
        self._samples = sum(int(own.shape[0]) for own in tokens) * self.data_parallel
        self._tokens = sum(int(own.numel()) for own in tokens) * self.data_parallel

    def numbers(self, result: Any) -> StepNumbers:
        """Of the step that has just ended; `result` is not looked at. All ranks count as having as much."""
        self._consumed += self._samples
        skipped = self._trainer.accelerator.optimizer_step_was_skipped
        count = self._trainer.state.global_step
        return StepNumbers(count, not skipped, self._samples, self._tokens, self._microbatches)

    def skipped_samples(self) -> int:
        """Those of a step."""
        return self._samples

    def names_phases(self) -> bool:
        """By what the Trainer calls in a step."""
        return True

    @staticmethod
    def say(line: str) -> None:
        """Only rank 0 has anything to say."""
        print(for_stdout(line), flush=True)


def _tokens_of(batch: Any) -> Any:
    return batch.get("input_ids") if hasattr(batch, "get") else None


class TrainerHost:
    """The training that is under way. Of the Trainer's module only `train` is wrapped all the time.

    Args:
        is_on: whether the monitor is asked for; called when a training begins, may end the process for a
            wrong option.
    """

    def __init__(self, hooks: TrainingHooks, patches: Patches, is_on: Callable[[], PerfConfig]) -> None:
        self._hooks, self._patches, self._is_on = hooks, patches, is_on
        self._in_training = Patches()
        self._module: ModuleType
        self._trainer: Any = None
        self._config: PerfConfig
        self._loop: TrainerLoop | None = None
        self._counter: RankCounter | None = None

    def patch(self, module: ModuleType) -> None:
        """Wraps the beginning of a training. A Trainer without what is called in one is left alone."""
        is_known = all(hasattr(module.Trainer, name) for name in POINTS)
        if is_known and hasattr(module.CallbackHandler, "on_step_end"):
            self._module = module
            self._hooks.time_mark = time_mark
            self._patches.wrap(module.Trainer, {"train": self._train})

    def _patch_training(self) -> None:
        """Wraps what a training calls, until it ends."""
        module, hooks, patches = self._module, self._hooks, self._in_training
        optimizer = phase_timer(hooks, "optimizer")
        wrappers: dict[str, Wrapper] = {
            "get_batch_samples": self._get_batch_samples,
            "compute_loss": functools.partial(phased, hooks=hooks, name="forward-compute"),
            "evaluate": functools.partial(paused, hooks=hooks, kind="eval"),
            "_save_checkpoint": functools.partial(paused, hooks=hooks, kind="checkpoint"),
        }
        patches.wrap(module.Trainer, wrappers)
        backward: Wrapper = functools.partial(phased, hooks=hooks, name="backward-compute")
        patches.wrap(getattr(module, "Accelerator", None), {"backward": backward})
        patches.wrap(
            module.CallbackHandler,
            {
                "on_pre_optimizer_step": lambda original: _then(original, optimizer.start),
                "on_optimizer_step": lambda original: _first(original, optimizer.stop),
                "on_step_end": self._on_step_end,
            },
        )

    def _train(self, original: Callable[..., Any]) -> Callable[..., Any]:
        run = ending(original, self._hooks, self._in_training)

        @functools.wraps(original)
        def train(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._trainer is not None:  # it trains already: another size of batch is tried, or nested
                return original(trainer, *args, **kwargs)
            self._config = self._is_on()
            if not self._config.enable_perf_monitor:
                return original(trainer, *args, **kwargs)
            self._trainer = trainer
            self._hooks.attach(self._patch_training)
            try:
                return run(trainer, *args, **kwargs)
            finally:
                self._trainer = self._loop = self._counter = None

        return train

    def _get_batch_samples(self, original: Callable[..., Any]) -> Callable[..., Any]:
        hooks, loading = self._hooks, phase_timer(self._hooks, "batch-generator")

        @functools.wraps(original)
        def get_batch_samples(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            if trainer is not self._trainer:
                return original(trainer, *args, **kwargs)
            if hooks.active:
                hooks.step_start()
                loading.start()
            found = original(trainer, *args, **kwargs)
            if self._loop is None:
                hooks.attach(lambda: self._begin(found[0]))
            elif hooks.active:
                loading.stop()
                hooks.attach(lambda: self._loaded(found[0]))
            return found

        return get_batch_samples

    def _begin(self, batches: list[Any]) -> None:
        """The first batches are there, and what they hold is known: only now the session begins."""
        self._loop = loop = TrainerLoop(self._trainer, batches, self._config)
        self._hooks.train_start(loop)
        if not self._hooks.active:
            return
        documents = Documents(restart=loop.is_restarting)
        if batches and lengths_of(batches[0], documents) is not None:
            self._counter = RankCounter(self._hooks, documents, loop.data_parallel)
            self._hooks.count_by(self._counter)
        self._hooks.step_start()
        self._loaded(batches)

    def _loaded(self, batches: list[Any]) -> None:
        if self._loop is not None:
            self._loop.loaded(batches)
        if self._counter is not None:
            for batch in batches:
                self._counter.add(batch)

    def _on_step_end(self, original: Callable[..., Any]) -> Callable[..., Any]:
        hooks = self._hooks

        @functools.wraps(original)
        def on_step_end(handler: Any, args: Any, state: Any, control: Any, *more: Any, **kwargs: Any) -> Any:
            if hooks.active and self._trainer is not None and state is self._trainer.state:
                hooks.step_end(None)
            return original(handler, args, state, control, *more, **kwargs)

        return on_step_end


def _then(original: Callable[..., Any], action: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        action()
        return result

    return call


def _first(original: Callable[..., Any], action: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        action()
        return original(*args, **kwargs)

    return call
