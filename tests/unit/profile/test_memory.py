"""What modules do with memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.events import Allocations
from flagscale_perf.profile.kineto import Range, Session
from flagscale_perf.profile.memory import Memory, MemoryKey, memory_of
from flagscale_perf.profile.ranges import STEP, Ranges
from tests.profiled_events import Event, events_of, module, node, step


def test_a_module_that_keeps_one_of_two_and_a_backward_that_frees_it() -> None:
    """Level: 100 at 5, 130 at 22, 170 at 25, 140 at 28; then 90 at 110 and 40 at 112."""
    events = events_of(
        [
            step(200),
            module("m", 10, 60),
            Event("aten::linear", 20, 40, sequence=1),
            Event("aten::empty", 21, 23),
            node("LinearBackward0", 100, 120, 1),
        ]
    )
    changes = Allocations(
        start_ns=np.array([5, 22, 25, 28, 110, 112]) * 1000,
        size_bytes=np.array([100, 30, 40, -30, -50, -50]),
        thread=np.ones(6, np.int64),
    )
    events = replace(events, allocations=changes)
    kept = Memory(2, 70, 40, transient_bytes=30, largest_bytes=40, peak_bytes=170)
    freed = Memory(0, 0, -100, 0, 0, 90)
    assert memory_of(events, Attribution.of(events)) == {
        MemoryKey("forward", "m", ""): kept,
        MemoryKey("forward", "m", "aten::linear"): kept,
        MemoryKey("backward", "m", "LinearBackward0"): freed,
        MemoryKey("backward", "m", ""): freed,
    }


def test_two_layers_keep_what_the_backward_needs() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16, bias=False), torch.nn.Linear(16, 4, bias=False))
    value = torch.ones(10, 8)
    ranges, session = Ranges(model), Session(shapes=True, memory=True)
    ranges.attach()
    session.start()
    with Range(STEP):
        result = model(value)
    session.stop()
    ranges.detach()
    assert result.shape == (10, 4)
    events = session.events(1000)
    found = memory_of(events, Attribution.of(events))
    first, second = 10 * 16 * 4, 10 * 4 * 4
    assert found[MemoryKey("forward", "0", "")] == Memory(1, first, first, 0, first, first)
    assert found[MemoryKey("forward", "1", "")] == Memory(1, second, second, 0, second, first + second)
    assert found[MemoryKey("forward", "Sequential", "")] == Memory(
        2, first + second, first + second, 0, first, first + second
    )
