"""What modules do with memory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed._tools.mem_tracker import MemTracker, _ModState

from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.events import Allocations
from flagscale_perf.profile.kineto import Range, Session
from flagscale_perf.profile.memory import Memory, MemoryKey, memory_of
from flagscale_perf.profile.prediction import Setup
from flagscale_perf.profile.ranges import STEP, Ranges
from flagscale_perf.profile.standalone.fake_step import made_ready
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
    assert memory_of(events, Attribution(events)) == {
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
    found = memory_of(events, Attribution(events))
    first, second = 10 * 16 * 4, 10 * 4 * 4
    assert found[MemoryKey("forward", "0", "")] == Memory(1, first, first, 0, first, first)
    assert found[MemoryKey("forward", "1", "")] == Memory(1, second, second, 0, second, first + second)
    assert found[MemoryKey("forward", "Sequential", "")] == Memory(
        2, first + second, first + second, 0, first, first + second
    )


def test_a_modules_backward_lasts_over_the_nodes_of_modules_in_it() -> None:
    """Levels: 50 in b's node, 30 behind it, 70 in a's, 20 at the end; `top` has both in a row."""
    events = events_of(
        [
            step(300),
            module("top", 10, 100),
            module("top.a", 20, 40),
            Event("aten::mm", 25, 35, sequence=1),
            module("top.b", 50, 70),
            Event("aten::add", 55, 65, sequence=2),
            node("AddBackward0", 110, 120, 2),
            node("MmBackward0", 130, 140, 1),
        ]
    )
    changes = Allocations(
        start_ns=np.array([112, 114, 132, 134]) * 1000,
        size_bytes=np.array([50, -20, 40, -50]),
        thread=np.ones(4, np.int64),
    )
    events = replace(events, allocations=changes)
    found = memory_of(events, Attribution(events))
    wholes = {key.module: each for key, each in found.items() if key.phase == "backward" and not key.op}
    assert wholes == {
        "top": Memory(2, 90, 20, transient_bytes=50, largest_bytes=50, peak_bytes=70),
        "top.a": Memory(1, 40, -10, transient_bytes=40, largest_bytes=40, peak_bytes=70),
        "top.b": Memory(1, 50, 30, transient_bytes=20, largest_bytes=50, peak_bytes=50),
    }


def test_torchs_own_tracker_finds_the_same_for_each_module_forward_and_backward() -> None:
    pytest.importorskip("transformers")
    ready = made_ready(Setup("small", 2, 32, "float32", optimizer="none"), None)
    ready.run(nullcontext)
    ranges, session = Ranges(ready.model), Session(memory=True)
    ranges.attach()
    session.start()
    with Range(STEP):
        ready.run(nullcontext)
    ranges.detach()
    session.stop()
    events = session.events(1 << 40)
    found = memory_of(events, Attribution(events))
    tracker = MemTracker()
    tracker.track_external(ready.model, ready.ids)
    before = total(tracker.get_tracker_snapshot())
    with tracker:
        ready.run(nullcontext)
    compared = 0
    for stats in tracker.memory_tracking.values():
        path = stats.mod_fqn.partition(".")[2] or stats.mod_fqn
        for part, peak in (("forward", _ModState.PEAK_FW), ("backward", _ModState.PEAK_BW)):
            own = found.get(MemoryKey(part, path, ""))
            for snapshot in stats.snapshots.get(peak, []) if own is not None else []:
                theirs = total(snapshot) - before
                assert own.peak_bytes <= theirs + 100_000, (part, path)
                if part == "forward" or not path.endswith(LATE):
                    assert own.peak_bytes >= theirs - 100_000, (part, path)
                    compared += 1
    assert compared > 100


# The tracker takes a module for running until the gradient of its inputs is whole: of one that is called by
# keyword that is never, and of one that shares its input that is when the others have run, too.
LATE = (".self_attn", ".v_proj", ".up_proj")


def total(snapshot: Mapping[Any, Mapping[str, int]]) -> int:
    """Of all devices."""
    return sum(each["Total"] for each in snapshot.values())
