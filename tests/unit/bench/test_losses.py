"""What is lost adds up to what the step takes beyond its share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.bench.losses import (
    BETWEEN,
    HOST,
    PRODUCTS,
    PROFILING,
    TRANSFER,
    WAIT,
    Loss,
    Step,
    losses,
)  # fmt: skip

ONE = Step({WAIT: 0.0, TRANSFER: 0.0, PRODUCTS: 8.0, HOST: 2.0}, total=10.0, clean=9.0, whole=12.0)
SEVERAL = Step({WAIT: 1.5, TRANSFER: 0.5, PRODUCTS: 5.0, HOST: 2.0}, total=9.0, clean=8.5, whole=11.0)


def test_each_part_loses_what_it_takes_beyond_its_share() -> None:
    assert losses(ONE, SEVERAL, 2) == [
        Loss(WAIT, 0.0, 1.5, 1.5),
        Loss(TRANSFER, 0.0, 0.5, 0.5),
        Loss(PRODUCTS, 8.0, 5.0, 1.0),
        Loss(HOST, 2.0, 2.0, 1.0),
        Loss(PROFILING, -1.0, -0.5, 0.0),
        Loss(BETWEEN, 3.0, 2.5, 1.0),
    ]


def test_together_they_are_what_the_client_sees_beyond_its_share() -> None:
    assert sum(one.lost for one in losses(ONE, SEVERAL, 2)) == 11.0 - 12.0 / 2


@pytest.mark.parametrize("missing", ["clean", "whole"])
def test_without_a_clean_step_or_a_client_they_are_those_of_the_profiled_step(missing: str) -> None:
    made = losses(replace(ONE, **{missing: None}), SEVERAL, 2)
    assert [one.part for one in made] == [WAIT, TRANSFER, PRODUCTS, HOST]
    assert sum(one.lost for one in made) == 9.0 - 10.0 / 2
