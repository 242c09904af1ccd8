"""Events made by hand, and small models, for the tests of the collector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from flagscale_perf.profile.attribution import NODE
from flagscale_perf.profile.events import Events
from flagscale_perf.profile.options import ProfileOptions, Steps
from flagscale_perf.profile.ranges import MODULE, STEP


class Event(NamedTuple):
    """One of the host; times in microseconds."""

    name: str
    start: int
    end: int
    thread: int = 1
    sequence: int = -1
    forward_thread: int = 0
    scope: int = 0
    is_async: bool = False


def module(path: str, start: int, end: int, **more: Any) -> Event:
    """The range of a module."""
    return Event(MODULE + path, start, end, **more)


def node(name: str, start: int, end: int, sequence: int = -1, **more: Any) -> Event:
    """A node of the backward pass, of a forward operator on thread 1."""
    return Event(NODE + name, start, end, sequence=sequence, forward_thread=1, **more)


def step(end: int) -> Event:
    """The range of a step from 0 on."""
    return Event(STEP, 0, end)


def events_of(events: Sequence[Event]) -> Events:
    """Sorted by start, of two with one start the first one given, as columns in nanoseconds."""
    ordered = sorted(events, key=lambda event: event.start)
    names = list(dict.fromkeys(event.name for event in ordered))

    def column(value: Callable[[Event], int]) -> Any:
        return np.array([value(event) for event in ordered], np.int64)

    return Events(
        names=names,
        name=column(lambda event: names.index(event.name)).astype(np.int32),
        start_ns=column(lambda event: event.start * 1000),
        duration_ns=column(lambda event: (event.end - event.start) * 1000),
        thread=column(lambda event: event.thread),
        scope=column(lambda event: event.scope).astype(np.int8),
        sequence=column(lambda event: event.sequence),
        forward_thread=column(lambda event: event.forward_thread),
        is_async=column(lambda event: event.is_async).astype(bool),
        device_ns=column(lambda event: -1),
    )


def tiny_qwen3_moe() -> Any:
    """A mixture of 4 experts, 2 for each token, of random weights."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=64,
        hidden_size=32,
        moe_intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
    )
    return Qwen3MoeForCausalLM(config)


def tiny_qwen3(layers: int = 2) -> Any:
    """A Qwen3 of random weights, from a configuration made here."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
    )
    return Qwen3ForCausalLM(config)


def train_step(model: Any, optimizer: Any, tokens: torch.Tensor) -> float:
    """Forward, backward, optimizer; the loss."""
    optimizer.zero_grad()
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def options_of(directory: Path, steps: str, **more: Any) -> ProfileOptions:
    """Of a single process."""
    return ProfileOptions(Steps.parse(steps), directory, **more)
