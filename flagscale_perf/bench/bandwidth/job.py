"""The task of a bandwidth test's ranks, and the points that they send back as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from flagscale_perf.bench.bandwidth.operations import locals_of

KB, MB, GB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Job:
    """Everything to be measured.

    Attributes:
        ranks: how many.
        backend: "gloo" or "nccl".
        operations: collectives, by their names; none for a rank alone.
        sizes: of collectives, bytes.
        message_sizes: of messages between two ranks, bytes; none for a rank alone.
        loops, loop_s: repetitions, and how long each lasts at least.
        copy_bytes: of a local buffer.
    """

    ranks: int
    backend: str
    operations: tuple[str, ...]
    sizes: tuple[int, ...]
    message_sizes: tuple[int, ...]
    loops: int
    loop_s: float
    copy_bytes: int

    @property
    def device(self) -> str:
        """The torch device that holds the data."""
        return "cuda" if self.backend == "nccl" else "cpu"

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Every rank with every other one, in both orders."""
        ranks = range(self.ranks)
        return [(source, target) for source in ranks for target in ranks if source != target]

    @property
    def planned(self) -> int:
        """How many points the ranks are going to send."""
        collectives = len(self.operations) * len(self.sizes)
        messages = 3 * len(self.pairs) // 2 * len(self.message_sizes)  # both ways of a pair together, too
        return collectives + messages + len(locals_of(self.device)) * self.ranks

    def encode(self) -> str:
        """The value as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, line: str) -> Job:
        """The value that `encode` made the line of."""
        content = json.loads(line)
        lists = {name: tuple(value) for name, value in content.items() if isinstance(value, list)}
        return cls(**content | lists)


class Measured(NamedTuple):
    """A point on its way to the run file: the fields of a `BenchPoint`."""

    case: Mapping[str, Any]
    start_ns: int
    dur_ns: int
    samples: list[float]
