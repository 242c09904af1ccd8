"""Layers compared within each step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.profile.analysis.paired import LayerTimes
from flagscale_perf.profile.analysis.source import read_profile
from flagscale_perf.profile.analysis.sums import sums_of
from flagscale_perf.profile.records import Sort
from tests.profile_runs import FORWARD, MATMUL, MS, Profiled, Run

LAYERS, HEAD = 4, -1


def _times(directory: Path, *steps: list[tuple[int, str, int, int]], ranks: int = 1) -> LayerTimes | None:
    """Of runs in each step: layer, operator, milliseconds on the host and on the device."""
    job = Profiled()
    for rank in range(ranks):
        process = job.rank(rank, ranks)
        numbers = [job.step(process, 1000 * place, 100, 100).number for place in range(len(steps))]
        runs = {
            number: [
                Run(FORWARD, _module(layer), op, host * MS * (1 + rank), device * MS)
                for layer, op, host, device in step
            ]
            for number, step in zip(numbers, steps, strict=True)
        }
        for layer in (*range(LAYERS), HEAD):
            row = (FORWARD, _module(layer), Sort.OPERATOR, MATMUL, 1, 1, None, None)
            job.row(process, row, steps=len(steps))
        job.window(process, steps=len(steps), calls=job.runs(directory, runs) if steps else "")
    profile = read_profile(open_session(job.write(directory)))
    return LayerTimes.of(profile, sums_of(profile)["train"])


def _module(layer: int) -> str:
    return "lm_head" if layer == HEAD else f"model.layers.{layer}.mlp"


def _step(*ms: int, op: str = MATMUL) -> list[tuple[int, str, int, int]]:
    return [(layer, op, one, 0) for layer, one in enumerate(ms)]


def test_operators_and_python_of_each_step_without_collectives(tmp_path: Path) -> None:
    more = [(2, "", 7, 0), (3, "gloo:all_reduce", 90, 0)]
    found = _times(tmp_path, *([*_step(10, 10, 10, step), *more] for step in (10, 12, 14)))
    assert found is not None
    assert list(found.names) == ["layer 0", "layer 1", "layer 2", "layer 3"]
    assert (found.taken_ns / MS).tolist() == [[10, 10, 17, 10], [10, 10, 17, 12], [10, 10, 17, 14]]


def test_a_step_that_was_held_up_as_a_whole_makes_no_layer_slower(tmp_path: Path) -> None:
    """Twice the median in each of three steps, one of which took five times as long."""
    found = _times(tmp_path, _step(10, 20, 10, 10), _step(50, 100, 50, 50), _step(10, 20, 10, 10))
    assert found is not None
    slow = found.slower()
    assert [one.ratios for one in slow] == [(1, 1), (2, 2), (1, 1), (1, 1)]
    assert (slow[1].ratio, slow[1].steps, slow[1].more_ns) == (2, 3, (10 * MS, 50 * MS))
    # of 220 ways to deal 12 values to 4 layers, in one has a layer the three highest; for any layer 4
    assert slow[1].chance == pytest.approx(4 / 220, abs=0.005)
    assert min(slow[0].chance, slow[2].chance) > 0.3


def test_a_layer_of_several_ranks_has_their_mean(tmp_path: Path) -> None:
    found = _times(tmp_path, *[_step(10, 10, 20, 10)] * 3, ranks=2)
    assert found is not None
    assert (found.taken_ns[0] / MS).tolist() == [15, 15, 30, 15]


def test_on_a_device_it_is_what_takes_longer_of_its_kernels_and_the_host(tmp_path: Path) -> None:
    found = _times(tmp_path, *[[(0, MATMUL, 1, 10), (1, MATMUL, 1, 10), (2, MATMUL, 40, 10)]] * 3)
    assert found is not None
    assert np.nan_to_num(found.taken_ns[0] / MS).tolist() == [10, 10, 40, 0]
    assert [one.name for one in found.slower()] == ["layer 0", "layer 1", "layer 2"]


def test_layers_that_are_dropped_at_random_are_not_compared(tmp_path: Path) -> None:
    steps = [[(layer, MATMUL, 10, 0) for layer in range(LAYERS) if layer != left] for left in range(LAYERS)]
    found = _times(tmp_path, *steps)
    assert found is not None
    assert found.slower() == []


def test_python_of_another_module_beyond_the_median_layer_step_by_step(tmp_path: Path) -> None:
    """Steps of 100 ms: the head takes 20 ms more than the median layer's 5; one step holds it up by 60."""
    layers = [(layer, "", 5, 0) for layer in range(LAYERS)]
    heads = ([(HEAD, "", ms, 0), (HEAD, MATMUL, 9, 0)] for ms in (25, 85, 25, 24))
    found = _times(tmp_path, *([*layers, *head] for head in heads))
    assert found is not None
    (one,) = found.python()
    assert (one.name, one.steps, one.share, one.shares) == ("lm_head", 4, 0.2, (0.19, 0.8))
    assert one.more_ns == (19 * MS, 80 * MS)


@pytest.mark.parametrize("steps", [[_step(1, 1, 9, 1)] * 2, [_step(1, 9)] * 3])
def test_too_few_steps_or_layers_tell_nothing(
    tmp_path: Path, steps: list[list[tuple[int, str, int, int]]]
) -> None:
    assert _times(tmp_path, *steps) is None
