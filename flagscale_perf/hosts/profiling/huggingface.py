"""Models of Hugging Face: a callback of its Trainer, and `generate()` with prefill and decode apart.

Nothing of `transformers` is imported: a callback is what has its methods, and any module has passes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from flagscale_perf.hosts.patching import Patches
from flagscale_perf.profile.options import ProfileOptions
from flagscale_perf.profile.profiler import Profiler
from flagscale_perf.profile.rank import Rank

HOST = "huggingface"
PREFILL, DECODE, FORWARD = "prefill", "decode", "forward"


class ProfilerCallback:
    """Profiles a Trainer: `Trainer(callbacks=[ProfilerCallback()])`. A step is one of the optimizer, with all
    its passes.

    Attributes:
        profiler: the profiler of the training that is under way; None outside of one.
    """

    def __init__(self, options: ProfileOptions | None = None) -> None:
        """`options`: None for those in the environment. Raises PerfError where these cannot be meant."""
        self._options = ProfileOptions.of() if options is None else options
        self.profiler: Profiler | None = None
        self._tokens = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """The Trainer is about to enter its loop; `given` has the model."""
        self.on_train_end(args, state, control)  # of a training that was left by an exception
        rank = Rank(host=HOST)
        if self._options.wants(rank.number):
            self.profiler = Profiler(given["model"], self._options, rank=rank)
        self._tokens = _tokens_seen(state)

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """The Trainer counts a step once it is over."""
        if self.profiler is not None:
            self.profiler.begin_step(state.global_step + 1)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Tokens are known where the Trainer counts them: `include_num_input_tokens_seen`."""
        if self.profiler is not None:
            seen = _tokens_seen(state)
            self.profiler.end_step(tokens=seen - self._tokens or None)
            self._tokens = seen

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Waits until the records are in the writer's hands."""
        profiler, self.profiler = self.profiler, None
        if profiler is not None:
            profiler.close()

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Ignores every other event of a Trainer, of whatever version."""
        if name.startswith("on_"):
            return lambda *args, **given: None
        raise AttributeError(name)


@contextlib.contextmanager
def forward_steps(model: nn.Module, options: ProfileOptions | None = None) -> Iterator[Profiler]:
    """Within the block each call of the model is a step, and what comes behind it until the next one belongs
    to it: `generate()` has its prefill and each token's decode apart.

        with forward_steps(model, ProfileOptions(Steps(2, 4), directory)):
            model.generate(**inputs)

    Args:
        model: of Hugging Face, or any whose first argument has the shape (samples, length, ...).
        options: as of `ProfilerCallback`.
    """
    given = ProfileOptions.of() if options is None else options
    patches = Patches()
    with Profiler(model, given, rank=Rank(host=HOST)) as profiler:
        patches.set_class(model, _stepping(type(model), profiler))
        try:
            yield profiler
        finally:
            patches.undo()


def _stepping(kind: type[nn.Module], profiler: Profiler) -> type[nn.Module]:
    """The model's class with an edge at each call. Not by hooks: those of the step's ranges are put in at its
    beginning, and the model looks for hooks before it comes to ours.
    """
    last: list[tuple[int | None, int | None]] = []

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        samples, length = _shape(args, kwargs)
        profiler.end_step(*(last.pop() if last else (None, None)))
        profiler.begin_step(phase=_phase(self, length))
        last.append((samples, None if samples is None or length is None else samples * length))
        return kind.__call__(self, *args, **kwargs)

    return type(
        kind.__name__,
        (kind,),
        {"__call__": call, "__module__": kind.__module__, "__qualname__": kind.__qualname__},
    )


def _shape(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int | None, int | None]:
    for name in ("input_ids", "inputs_embeds"):
        if getattr(kwargs.get(name), "ndim", 0) >= 2:
            return int(kwargs[name].shape[0]), int(kwargs[name].shape[1])
    first = args[0] if args else None
    if getattr(first, "ndim", 0) >= 2:
        assert first is not None
        return int(first.shape[0]), int(first.shape[1])
    return None, None


def _phase(model: nn.Module, length: int | None) -> str:
    if length is None or model.training:
        return FORWARD
    return DECODE if length == 1 else PREFILL


def _tokens_seen(state: Any) -> int:
    return int(getattr(state, "num_input_tokens_seen", 0) or 0)
