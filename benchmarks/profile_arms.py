"""A model, its step, and every way to look into it that `benchmarks/bench_profile.py` compares."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch.nn import functional
from torch.profiler import ProfilerActivity
from torch.utils._python_dispatch import TorchDispatchMode

from flagscale_perf.profile.kineto import Session
from flagscale_perf.profile.profiler import Profiler
from flagscale_perf.profile.records import StepRecord, WindowRecord
from flagscale_perf.profiling import ProfileOptions, Steps

PATCHED = (
    (functional, "linear"),
    (functional, "softmax"),
    (torch, "matmul"),
    (torch, "softmax"),
    (functional, "scaled_dot_product_attention"),
)

clock = time.process_time_ns


class Size(NamedTuple):
    """Of a model, and of what it is given."""

    hidden: int
    tokens: int
    heads: int
    layers: int = 4


SIZES = {"tiny": Size(64, 32, 4), "mid": Size(512, 256, 8)}


class Took(NamedTuple):
    """Nanoseconds of CPU time: of the step, and with all that belongs to its arm."""

    step_ns: int
    whole_ns: int


Arm = Callable[[], Took]


def made(size: Size, training: bool) -> tuple[torch.nn.Module, Callable[[], None]]:
    """A model and its step."""
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=256,
        hidden_size=size.hidden,
        intermediate_size=3 * size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads // 2,
        head_dim=size.hidden // size.heads,
        max_position_embeddings=size.tokens,
    )
    model = transformers.Qwen3ForCausalLM(config).train(training)
    tokens = torch.randint(0, 256, (1, size.tokens))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def train() -> None:
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()

    def infer() -> None:
        with torch.no_grad():
            model(input_ids=tokens, use_cache=False)

    return model, train if training else infer


class Ours:
    """Our Profiler around a step, which it profiles one time in `every`, by its own count, or by that of who
    calls it: then odd steps are profiled where `every` is 2. `wait` is for a window's records.

    Attributes:
        events: of the newest profiled step.
    """

    def __init__(self, model: torch.nn.Module, every: int = 2) -> None:
        self.events = 0
        self._is_reduced = threading.Event()
        options = ProfileOptions(
            Steps(1, 1, every), Path.cwd(), clean=0, shapes=False, memory=False, max_events=10**9
        )
        self.profiler = Profiler(model, options, put=self._put)

    def _put(self, record: Any) -> None:
        if isinstance(record, StepRecord):
            self.events = record.events or 0
        if isinstance(record, WindowRecord):
            self._is_reduced.set()

    def wait(self) -> None:
        """Until the window's records are there."""
        if not self._is_reduced.wait(60):
            raise RuntimeError("a window has no records after a minute")
        self._is_reduced.clear()


def plain(step: Callable[[], None]) -> Arm:
    """Nothing around it."""

    def run() -> Took:
        begin = clock()
        step()
        return Took(clock() - begin, clock() - begin)

    return run


def ours(profiled: Ours, step: Callable[[], None], is_profiled: bool = True) -> Arm:
    """With our Profiler around it, which profiles every second one: this step, or the one beside it."""

    def run() -> Took:
        begin = clock()
        profiled.profiler.begin_step(1 if is_profiled else 2)
        start = clock()
        step()
        took = clock() - start
        profiled.profiler.end_step()
        if is_profiled:
            profiled.wait()
        return Took(took, clock() - begin)

    return run


def unread(step: Callable[[], None]) -> Arm:
    """With the session of torch that our Profiler has, and nothing else of it: its events are not read."""

    def run() -> Took:
        begin = clock()
        session = Session()
        session.start()
        start = clock()
        step()
        took = clock() - start
        session.stop()
        return Took(took, clock() - begin)

    return run


def torchs(step: Callable[[], None], with_stack: bool) -> Arm:
    """With torch's profiler around it, and its table."""

    def run() -> Took:
        begin = clock()
        with torch.profiler.profile(activities=[ProfilerActivity.CPU], with_stack=with_stack) as profile:
            start = clock()
            step()
            took = clock() - start
        profile.key_averages()
        return Took(took, clock() - begin)

    return run


class Timers(TorchDispatchMode):
    """A clock around every operator below autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[Any, list[float]] = defaultdict(list)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        begin = time.perf_counter()
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.times[func].append(time.perf_counter() - begin)


def dispatched(step: Callable[[], None]) -> Arm:
    """With `Timers` on."""

    def run() -> Took:
        begin = clock()
        with Timers() as timers:
            start = clock()
            step()
            took = clock() - start
        {func: sum(times) for func, times in timers.times.items()}
        return Took(took, clock() - begin)

    return run


def patched(step: Callable[[], None]) -> Arm:
    """Functions of torch replaced by ones with a clock around them, as the requirement has it."""
    times: dict[str, list[float]] = defaultdict(list)

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def replacement(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                times[f"{name}_{args[1].shape if len(args) > 1 else ''}"].append(time.perf_counter() - begin)

        return replacement

    def run() -> Took:
        times.clear()
        begin = clock()
        originals = [getattr(place, name) for place, name in PATCHED]
        try:
            for (place, name), original in zip(PATCHED, originals, strict=True):
                setattr(place, name, timed(name, original))
            start = clock()
            step()
            took = clock() - start
        finally:
            for (place, name), original in zip(PATCHED, originals, strict=True):
                setattr(place, name, original)
        {name: sum(each) for name, each in times.items()}
        return Took(took, clock() - begin)

    return run
