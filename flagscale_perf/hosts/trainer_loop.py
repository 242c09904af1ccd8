"""What trainers of other libraries have in common that hand out micro-batches: Hugging Face's, Lightning's.

What is counted is in the batches as they are there: no tensor on a device is read.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import flagscale_perf
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.flops_calculator import Packed, args_from_config
from flagscale_perf.hooks import StepNumbers, TrainingHooks
from flagscale_perf.hosts.core_loop import refuse_frozen
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.work import OFFSETS, Documents, RankCounter, lengths_of
from flagscale_perf.hosts.wrappers import ending
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.records import tuple_of
from flagscale_perf.spine.units import print_line
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.host_arguments import recorded, recorded_environment
from flagscale_perf.training.work import AS_RANK_0, NOT_COUNTED, Microbatch, RankWork

_PADDING = "padding, where there is any (it counts as tokens)"
_LAYER = "GradientCheckpointingLayer"
_NOTHING = (0, 0, 0, 0, 0)
_NO_TOKENS = "tokens (the batches have no input_ids of two dimensions)"


class Trainer(Protocol):
    """What a host's trainer says of one training.

    Attributes:
        host: its name and version.
        model: the model as it was built, before it was wrapped for several ranks.
        rank, world_size: this process's place.
        data_parallel: ranks that have batches of their own.
        accumulated: micro-batches of a step.
        precision: in which it computes, such as "bf16-mixed"; the model's own if it says nothing.
        steps: of the whole training; None if unknown.
        missing: what it does not say.
        arguments: its own, by name; None where it keeps none.
        finished: returns the steps before this one, or before the next where none is under way.
        skipped: returns whether the optimizer has passed over its last update; None where it never does, or
            nobody knows.
    """

    host: str
    model: Any
    rank: int
    world_size: int
    data_parallel: int
    accumulated: int
    precision: str
    steps: int | None
    missing: list[str]
    arguments: Mapping[str, Any] | None
    finished: Callable[[], int]
    skipped: Callable[[], bool] | None


class TrainerLoop:
    """`hooks.Loop` for one training.

    Args:
        trainer: see there.
        batch: the first micro-batch of this rank; None if there is none.
        config: the options in force.

    Attributes:
        ranks: that have batches of their own; each is taken to have as much as this one.
        counts_rows: each row of a batch is one document, so that its lengths are this rank's work.
    """

    def __init__(self, trainer: Trainer, batch: Any, config: PerfConfig) -> None:
        self._trainer, self._config = trainer, config
        self._finished, self._skipped = trainer.finished, trainer.skipped
        self.ranks = trainer.data_parallel
        self.rehearsing = self.counts_rows = False
        self._consumed = 0
        # Samples, their tokens and their squared lengths, micro-batches, and those of them without tokens; of
        # these the step before, and what followed from it.
        self._held = self._last = _NOTHING
        self._work: RankWork = NOT_COUNTED
        self._packed: Packed | None = None
        tokens = _tokens_of(batch)
        self._rows, self._width = map(int, tokens.shape) if tokens is not None else (_rows_of(batch), 0)

    def rank(self) -> int:
        """As the host's launcher set it."""
        return self._trainer.rank

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
        model = self._trainer.model
        head = getattr(model, "get_output_embeddings", lambda: None)()
        if head is None or not self._width:
            raise PerfError(f"model: {type(model).__name__} is no language model of transformers")
        refuse_frozen(model)
        return {
            **args_from_config(model.config.to_dict()),
            **_recomputed(model),
            "micro_batch_size": self._rows,
            "seq_length": self._width,
        }

    def facts(self, device: str) -> RunFacts:
        """What the host and its first batch say."""
        trainer = self._trainer
        others = [f"work of {AS_RANK_0}"] if trainer.data_parallel > 1 else []
        return RunFacts(
            package_version=flagscale_perf.__version__,
            host=trainer.host,
            script=os.path.basename(sys.argv[0]),
            hostname=os.uname().nodename,
            pid=os.getpid(),
            world_size=trainer.world_size,
            restart_count=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
            tensor_parallel=trainer.world_size // trainer.data_parallel,
            pipeline_parallel=1,
            data_parallel=trainer.data_parallel,
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
            global_batch_size=self._rows * trainer.accumulated * trainer.data_parallel or None,
            train_iters=trainer.steps,
            resume_iteration=trainer.finished(),
            tensorboard_dir=None,
            arguments=None if trainer.arguments is None else recorded(trainer.arguments),
            environment=None if trainer.arguments is None else recorded_environment(os.environ),
            missing=[_PADDING if self._width else _NO_TOKENS, *others, *trainer.missing],
        )

    def _dtype(self) -> str:
        names = f"{self._trainer.precision} {getattr(self._trainer.model, 'dtype', '')}"
        return "bf16" if "bf" in names else "fp16" if "16" in names else "fp32"

    def position(self) -> tuple[int, int]:
        """By the host's own count of steps."""
        return self._finished(), self._consumed

    def add(self, batches: Sequence[Any], begins: bool) -> None:
        """Micro-batches of a step, which `begins` with them or has had others."""
        samples, tokens, squared_lengths, count, unseen = _NOTHING if begins else self._held
        for batch in batches:
            ids = batch.get("input_ids") if type(batch) is dict else _tokens_of(batch)
            shape: Sequence[int] = getattr(ids, "shape", ())
            if len(shape) == 2:
                rows, width = shape
                samples += rows
                tokens += rows * width
                squared_lengths += rows * width * width
            else:
                samples += _rows_of(batch)
                unseen += 1
        self._held = samples, tokens, squared_lengths, count + len(batches), unseen

    def numbers(self, result: bool) -> StepNumbers:
        """Of the step that has just ended; `result`: whether the host has counted it already. All ranks count
        as having as much.
        """
        held, ranks = self._held, self.ranks
        samples, tokens, squared_lengths, microbatches, unseen = held
        if held != self._last:
            self._last, self._work, self._packed = held, NOT_COUNTED, None
            if self.counts_rows and not unseen:
                self._work = tokens, squared_lengths, None
                self._packed = Packed(tokens * ranks, squared_lengths * ranks)
        self._consumed += samples * ranks
        return tuple_of(
            StepNumbers,
            (
                self._finished() + (not result),
                self._skipped is None or not self._skipped(),
                samples * ranks,
                tokens * ranks,
                microbatches,
                self._work,
                self._packed,
            ),
        )

    def skipped_samples(self) -> int:
        """Those of a step."""
        return self._held[0] * self.ranks

    def names_phases(self) -> bool:
        """By what the host calls in a step."""
        return True

    @staticmethod
    def say(line: str) -> None:
        """Only rank 0 has anything to say."""
        print_line(line)


def _recomputed(model: Any) -> dict[str, Any]:
    """Which layers the model runs again in its backward pass, in Megatron's names."""
    marked = [type(each) for each in model.modules() if getattr(each, "gradient_checkpointing", False)]
    layers = sum(any(base.__name__ == _LAYER for base in each.__mro__) for each in marked)
    found = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": layers}
    if not layers:  # transformers before 4.53 marks the whole model only
        found |= {"recompute_method": "uniform", "recompute_num_layers": 1}
    return found if marked else {}


def _tokens_of(batch: Any) -> Any:
    found = batch.get("input_ids") if hasattr(batch, "get") else None
    return found if found is not None and found.dim() == 2 else None


def _rows_of(batch: Any) -> int:
    """Samples in a batch: the first dimension of the first tensor in it; 0 where there is none."""
    while isinstance(batch, Mapping | list | tuple):
        batch = next(iter(batch.values() if isinstance(batch, Mapping) else batch), None)
    shape = getattr(batch, "shape", ())
    return int(shape[0]) if shape else 0


class TrainerHost:
    """The training that is under way.

    Args:
        is_on: whether the monitor is asked for; called when a training begins, may end the process for a
            wrong option.
    """

    def __init__(self, hooks: TrainingHooks, patches: Patches, is_on: Callable[[], PerfConfig]) -> None:
        self.hooks, self.patches, self._is_on = hooks, patches, is_on
        self.in_training = Patches()
        self.trainer: Any = None
        self.loop: TrainerLoop | None = None
        self._config: PerfConfig
        self.add: Callable[[Sequence[Any], bool], None]  # counts micro-batches, see `TrainerLoop.add`

    def patch_training(self) -> None:
        """Wraps what a training calls, until it ends."""
        raise NotImplementedError

    def told(self, trainer: Any) -> Trainer:
        """What the host's trainer says, once its first batch is there."""
        raise NotImplementedError

    def trains(self, trainer: Any) -> bool:
        """Whether the call that is wrapped is one of a training."""
        return True

    def run(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Around the method of the host's trainer in which it trains."""
        run = ending(original, self.hooks, self.in_training)

        @functools.wraps(original)
        def train(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            is_nested = self.trainer is not None  # in it another size of batch is tried, for example
            if is_nested or not self.trains(trainer):
                return original(trainer, *args, **kwargs)
            self._config = self._is_on()
            if not self._config.enable_perf_monitor:
                return original(trainer, *args, **kwargs)
            self.trainer = trainer
            self.hooks.attach(self.patch_training)
            try:
                return run(trainer, *args, **kwargs)
            finally:
                self.trainer = self.loop = None
                vars(self).pop("add", None)

        return train

    def begin(self, batch: Any) -> None:
        """The first batch is there, and what it holds is known: only now the session begins."""
        self.loop = loop = TrainerLoop(self.told(self.trainer), batch, self._config)
        self.add = loop.add
        self.hooks.train_start(loop)
        if not self.hooks.active:
            return
        if _tokens_of(batch) is not None:
            self._count(batch, loop)
        self.hooks.step_start()

    def _count(self, batch: Any, loop: TrainerLoop) -> None:
        """Counts documents where batches show them, else rows."""
        documents = Documents(restart="position_ids" in batch)
        if not documents.restart and not any(name in batch for name in OFFSETS):
            loop.counts_rows = True
        elif lengths_of(batch, documents) is not None:
            counter = RankCounter(self.hooks, documents, loop.ranks)
            self.hooks.count_by(counter)
            self.add = functools.partial(_add_documents, loop, counter)


def _add_documents(loop: TrainerLoop, counter: RankCounter, batches: Sequence[Any], begins: bool) -> None:
    loop.add(batches, begins)
    for batch in batches:
        counter.add(batch)
    counter.spent_ns = 0  # `hooks.count` has it
