"""What the ranks of a bandwidth test are to measure, and the points they send back, as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from flagscale_perf.bench.bandwidth.local import locals_of
from flagscale_perf.bench.bandwidth.operations import COLLECTIVES
from flagscale_perf.bench.names import BETWEEN_NODES, INSIDE_NODE

KB, MB, GB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Job:
    """Everything to be measured.

    Attributes:
        ranks: how many.
        backend: "gloo" or "nccl".
        operations: collectives, by their names.
        sizes: of collectives, bytes.
        message_sizes: of messages between two ranks, bytes.
        loops, loop_s: repetitions, and how long each lasts at least.
        copy_bytes: of a local buffer.
        nodes: where each rank is; empty for one node.
    """

    ranks: int
    backend: str
    operations: tuple[str, ...]
    sizes: tuple[int, ...]
    message_sizes: tuple[int, ...]
    loops: int
    loop_s: float
    copy_bytes: int
    nodes: tuple[int, ...] = ()

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
    def levels(self) -> dict[str, list[list[int]]]:
        """For a job on several nodes with several ranks each: the groups of ranks that are measured by
        themselves. Groups of one level run at the same time.
        """
        groups = [
            [rank for rank, at in enumerate(self.nodes) if at == node] for node in sorted({*self.nodes})
        ]
        if len(groups) < 2 or min(map(len, groups)) < 2:
            return {}
        return {INSIDE_NODE: groups, BETWEEN_NODES: [[group[0] for group in groups]]}

    def level(self, pair: tuple[int, int]) -> dict[str, str]:
        """The part of a message's case that names its level; empty on one node."""
        if len({*self.nodes}) < 2:
            return {}
        return {"level": INSIDE_NODE if self.nodes[pair[0]] == self.nodes[pair[1]] else BETWEEN_NODES}

    @property
    def planned(self) -> int:
        """Number of points."""
        makes = sum(len(COLLECTIVES[name]) for name in self.operations if name in COLLECTIVES)
        collectives = (1 + len(self.levels)) * makes * len(self.sizes) if self.ranks > 1 else 0
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
