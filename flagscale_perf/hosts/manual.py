"""A training loop of the user's own, which calls the monitor itself, in a few lines of the script."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import SimpleNamespace, TracebackType
from typing import Any

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.flops_calculator import args_from_config
from flagscale_perf.hooks import Pause, StepNumbers, TrainingHooks
from flagscale_perf.hosts import rehearsal
from flagscale_perf.hosts.core_loop import CoreLoop, Training, refuse_frozen, version_of
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.profiled import begin_profile
from flagscale_perf.hosts.timers import SilentTimers, mark_phases, time_mark
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.training.facts import RunFacts


class PerfMonitor:
    """The monitor of one training loop, as a context manager around it; the same code runs on every rank.

        training = Training(seq_length=2048, micro_batch_size=1, global_batch_size=8)
        with PerfMonitor(model, training) as monitor:
            for batch in data:
                with monitor.step():
                    ...  # forward, backward, optimizer

    Leaving the block, also by an exception or SystemExit, ends the session and writes its summary. Nothing
    but the constructor ever raises: a failure inside switches the monitor off, says so once, and training
    goes on.

    Args:
        model: the model built from Megatron-Core, or the list of its chunks; another one if `training.model`
            describes it, in which nothing is frozen.
        training: what the loop is about to do.
        config: the options; None takes them from the environment (FLAGSCALE_PERF_...).

    Attributes:
        timers: for `timers` of the model's and the optimizer's configuration, to be set before the block is
            entered: Megatron-Core then marks its phases (`perf_breakdown`). `timers(name).start()` and
            `.stop()` mark the ones that the loop itself goes through, by the names in docs/metrics.md. They
            do nothing else.

    Raises:
        PerfError: an option or a size is wrong.
    """

    def __init__(self, model: Any, training: Training, config: PerfConfig | None = None) -> None:
        for name in ("seq_length", "micro_batch_size", "global_batch_size"):
            value = getattr(training, name)
            if not isinstance(value, int) or value < 1:
                raise PerfError(f"Training.{name} is {value!r}; give a whole number above 0")
        self._hooks = TrainingHooks()
        self._hooks.time_mark = time_mark
        self._in_training = Patches()
        self.timers = SilentTimers()
        self._model = model
        checked = PerfConfig.from_args({}) if config is None else PerfConfig.from_args(config, environ={})
        loop = ManualLoop if training.model is None else DescribedLoop
        self._loop = loop(model, training, checked)
        if training.model is not None:
            self._loop.model_config.timers = self.timers

    def __enter__(self) -> PerfMonitor:
        """Begins the session: training starts now."""
        self._hooks.train_start(self._loop)
        if self._hooks.active and self._hooks.takes_marks:
            self._hooks.attach(lambda: mark_phases(self._loop.timers(), self._hooks, self._in_training))
        if self._hooks.active:
            self._hooks.attach(lambda: begin_profile(self._hooks, self._loop, lambda: self._model))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the session; an exception is its end reason."""
        self._hooks.attach(self._in_training.undo)
        self._hooks.train_end(error)

    def step(self) -> TrainStep:
        """Around one train step. An exception in it passes, and the step does not count as an iteration."""
        return TrainStep(self._hooks, self._loop)

    def evaluation(self) -> AbstractContextManager[None]:
        """Around an evaluation between two steps."""
        return self._break("eval")

    def checkpoint(self) -> AbstractContextManager[None]:
        """Around the saving of a checkpoint between two steps."""
        return self._break("checkpoint")

    @contextmanager
    def _break(self, kind: Pause) -> Iterator[None]:
        """Time between two steps that is not training."""
        if self._hooks.active:
            self._hooks.pause(kind)
        try:
            yield
        finally:
            if self._hooks.active:
                self._hooks.resume(kind)


class TrainStep:
    """One train step; what is set on it inside the block goes to the records.

    Attributes:
        updated: set it to False when the optimizer skipped its update.
        samples: of all data-parallel ranks; the global batch unless the step changes it.
        tokens: in these samples; set it where the samples are not all `seq_length` long.
    """

    def __init__(self, hooks: TrainingHooks, loop: ManualLoop) -> None:
        self._hooks = hooks
        self._loop = loop
        self.updated = True
        self.samples = loop.training.global_batch_size
        self.tokens: int | None = None

    def __enter__(self) -> TrainStep:
        """The step begins."""
        if self._hooks.active:
            self._hooks.step_start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The step has ended."""
        if error is None:
            if self._hooks.active:
                self._hooks.step_end(self)
            try:
                self._loop.finished(self.samples)
            except TypeError as wrong:  # `samples` is no number
                self._hooks.phase_failed(wrong, "a step")


class ManualLoop(CoreLoop):
    """`hooks.Loop` for a loop that calls the monitor; counts iterations and samples as the steps end."""

    def __init__(self, model: Any, training: Training, config: PerfConfig) -> None:
        super().__init__(model, training, rehearsal.is_installed())
        self._config = config
        self._iteration = training.iteration
        self._consumed = training.consumed_samples

    def config(self) -> PerfConfig:
        """The options that the caller gave."""
        return self._config

    def facts(self, device: str) -> RunFacts:
        """The facts that the loop gave, and those of the model."""
        version = getattr(sys.modules.get("megatron.core"), "__version__", None) or version_of(
            "megatron-core"
        )
        return self._facts(f"Megatron-Core {version}", device, ())

    def position(self) -> tuple[int, int]:
        """Iterations and samples counted so far."""
        return self._iteration, self._consumed

    def numbers(self, result: TrainStep) -> StepNumbers:
        """The numbers that were set on the step."""
        per_pass = self.training.micro_batch_size * self.data_parallel_size()
        tokens = result.samples * self.training.seq_length if result.tokens is None else result.tokens
        return StepNumbers(
            self._iteration + 1, result.updated, result.samples, tokens, result.samples // per_pass
        )

    def skipped_samples(self) -> int:
        """One global batch."""
        return self.training.global_batch_size

    def finished(self, samples: int) -> None:
        """One more iteration has ended."""
        self._iteration += 1
        self._consumed += samples


# Of a model that is not of Megatron-Core, unless it is said.
_PLAIN = {
    "bf16": False,
    "fp16": False,
    "tensor_model_parallel_size": 1,
    "pipeline_model_parallel_size": 1,
    "context_parallel_size": 1,
}


class DescribedLoop(ManualLoop):
    """The same over a model of any library, which `Training.model` describes."""

    def __init__(self, model: Any, training: Training, config: PerfConfig) -> None:
        self._parts = list(model) if isinstance(model, list | tuple) else [model]
        described = SimpleNamespace(config=SimpleNamespace(**{**_PLAIN, **(training.model or {})}))
        super().__init__(described, training, config)

    def model_args(self) -> dict[str, Any]:
        """What the loop gave. Raises PerfError for what cannot be counted."""
        given, training = dict(self.training.model or {}), self.training
        for part in self._parts:
            refuse_frozen(part)
        named = args_from_config(given) if "model_type" in given else given
        return {**named, "micro_batch_size": training.micro_batch_size, "seq_length": training.seq_length}

    def facts(self, device: str) -> RunFacts:
        """The facts that the loop gave. The order in which its pipeline works is not known."""
        return replace(self._facts(self.training.host or "another loop", device, ()), pipeline_schedule=None)
