"""Times of a layer, the embedding and the head from stages that differ."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.replays import MissingRecordError
from flagscale_perf.whatif.layer_times import FREE, Split, layer_times

LAYER, FIRST, LAST = 6.0, 1.5, 4.0


def split(*layers: int) -> Split:
    last = len(layers) - 1
    return Split(
        layers, [LAYER * count + FIRST * (at == 0) + LAST * (at == last) for at, count in enumerate(layers)]
    )


@pytest.mark.parametrize("splits", [[split(3, 3, 3)], [split(2, 4), split(4, 2)], [split(2, 2), split(3, 1)]])
def test_layouts_that_differ_enough_tell_all_three(splits: list[Split]) -> None:
    found = layer_times(splits, "pp=4")
    assert (found.layer, found.first, found.last) == pytest.approx((LAYER, FIRST, LAST))
    assert found.note == ""
    assert found.of((2, 2), 0) == pytest.approx(13.5)
    assert found.of((2, 5, 2), 1) == pytest.approx(30)


def test_of_two_stages_the_embedding_is_taken_to_be_free() -> None:
    found = layer_times([split(3, 3)], "pp=4")
    assert found.first == pytest.approx(0)
    assert found.layer == pytest.approx(LAYER + FIRST / 3)
    assert found.note == FREE


def test_one_stage_alone_tells_nothing_of_a_layer() -> None:
    with pytest.raises(MissingRecordError, match="pp=2: no answer without what one layer takes"):
        layer_times([split(8)], "pp=2")
