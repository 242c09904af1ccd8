"""The bytes of whole programs: replayed on every path, predicted for every path, and copied once."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from flagscale_perf.rpc.costs.calibration import WAYS, Line, Memory, Plan, Times, connected, copies_ns
from flagscale_perf.rpc.costs.model import Traffic
from flagscale_perf.rpc.traffic import ModelSizes, Pass, Stage, pass_traffic

LLAMA_1B = ModelSizes(layers=16, hidden=2048, heads=32, kv_heads=8, head_dim=64, ffn=8192, vocab=128256)
COPY = "one copy of memory"
Calls = Sequence[tuple[int, int]]


def _calls(run: Pass) -> Calls:
    return [(call.sent_bytes, call.received_bytes) for call in pass_traffic(LLAMA_1B, run)]


PREFILL, PREFILL_BF16 = "1024 tokens, float32", "1024 tokens, bfloat16"
FUSED_BF16, DECODE = "the same, attention fused", "one token, bfloat16"
SCALED = "256 tokens, float32"
LOADS: dict[str, Calls] = {
    PREFILL: _calls(Pass()),
    PREFILL_BF16: _calls(Pass(item_bytes=2)),
    FUSED_BF16: _calls(Pass(Stage.FUSED_ATTENTION, item_bytes=2)),
    SCALED: _calls(Pass(tokens=256)),
    DECODE: _calls(Pass(tokens=1, cached=1023, item_bytes=2)),
}


@dataclass
class Replays:
    """Times in seconds, a round each, of a load on a path; and what was predicted for it."""

    took_s: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    predicted_s: dict[tuple[str, str], float] = field(default_factory=dict)

    def best(self, load: str, path: str) -> float:
        return min(self.took_s[load, path])

    def middle(self, load: str, path: str) -> float:
        return statistics.median(self.took_s[load, path])

    def ratio(self, load: str, path: str, other: str) -> float:
        """Of two paths in the same round, the middle of the rounds."""
        pairs = zip(self.took_s[load, path], self.took_s[load, other], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)

    def off(self, load: str, path: str) -> float:
        """The prediction, which is of the rounds' medians, as a share of what the middle round took."""
        return self.predicted_s[load, path] / self.middle(load, path) - 1


def replay(rounds: int) -> Replays:
    """Each round calibrates for every load, as the diagnosis of that program does, and replays it on every
    path.
    """
    largest = max(size for calls in LOADS.values() for call in calls for size in call)
    found, memory = Replays(), Memory(largest)
    with connected(Plan.up_to(largest, rounds)) as lines:
        times = {(load, line.way): Times() for load in LOADS for line in lines}
        for line in lines:  # memory that is used for the first time is not what is measured
            line.exchange(memory.source, largest)
        for _ in range(rounds):
            for load, calls in LOADS.items():
                sizes = Plan.up_to(Traffic.of(calls).largest_bytes).sizes
                for line in lines:
                    line.times = times[load, line.way]
                    line.measure(memory.source, sizes)
                _replayed(load, lines, memory, found)
        for load, calls in LOADS.items():
            for line in lines:
                line.times = times[load, line.way]
                predicted = line.cost().predict(Traffic.of(calls))
                found.predicted_s[load, line.way.name] = predicted.total_ns / 1e9
    return found


def _replayed(load: str, lines: Sequence[Line], memory: Memory, found: Replays) -> None:
    calls = LOADS[load]
    before = copies_ns(memory, calls)
    for line in lines:
        _note(found, load, line.way.name, line.replay(memory.source, calls))
    _note(found, load, COPY, min(before, copies_ns(memory, calls)))


def _note(found: Replays, load: str, path: str, time_ns: float) -> None:
    found.took_s.setdefault((load, path), []).append(time_ns / 1e9)


PATHS = tuple(way.name for way in WAYS)
