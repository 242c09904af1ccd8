"""What a layer takes, and what the embedding and the head take beside layers, from stages that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from flagscale_perf.analysis.replays import MissingRecordError

FREE = "the embedding is taken to take no time: two stages do not tell it from a layer"


class LayerTimes(NamedTuple):
    """Of one direction, in nanoseconds.

    Attributes:
        layer: one layer's pass.
        first, last: what the first and the last chunk take besides.
        note: what was assumed; "" where nothing was.
    """

    layer: float
    first: float
    last: float
    note: str = ""

    def of(self, layers: Sequence[int], place: int) -> float:
        """What a pass through a chunk takes, by the layers of all chunks."""
        edges = self.first * (place == 0) + self.last * (place == len(layers) - 1)
        return max(0.0, layers[place] * self.layer + edges)


class Split(NamedTuple):
    """A layout that was recorded.

    Attributes:
        layers: of each chunk, in the model's order.
        pass_ns: of each chunk, what a pass usually takes.
    """

    layers: Sequence[int]
    pass_ns: Sequence[float]


def layer_times(splits: Sequence[Split], text: str) -> LayerTimes:
    """All layers being alike, the times that fit best. Raises MissingRecordError where layouts do not tell
    them; `text`: of the change.
    """
    rows: list[Sequence[float]] = []
    times: list[float] = []
    for layers, pass_ns in splits:
        for place, count in enumerate(layers):
            rows.append((count, place == 0, place == len(layers) - 1))
            times.append(pass_ns[place])
    note = ""
    if np.linalg.matrix_rank(np.array(rows, float)) < 3:
        rows.append((0, 1, 0))
        times.append(0.0)
        note = FREE
    if np.linalg.matrix_rank(np.array(rows, float)) < 3:
        raise MissingRecordError(
            text,
            "what one layer takes: one stage has all layers, the embedding and the head",
            "a second run with another split, such as --pipeline-model-parallel-size 2, given by --with RUN",
        )
    layer, first, last = np.linalg.lstsq(np.array(rows, float), np.array(times), rcond=None)[0].tolist()
    return LayerTimes(layer, first, last, note)


def by_kind(splits: Mapping[bool, Sequence[Split]], text: str) -> dict[bool, LayerTimes]:
    """Of forward (True) and backward passes."""
    return {is_forward: layer_times(own, text) for is_forward, own in splits.items()}
