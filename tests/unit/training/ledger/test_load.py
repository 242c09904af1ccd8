"""What units have to do, side by side: in FLOPs, of what is known of all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.training.ledger.load import Load, kinds_of, loads_of
from tests.schedules import recorded, with_work

PRICE = {"tokens": 10.0, "squared_lengths": 1.0, "expert_tokens": 2.0}
(RECORD,) = with_work(recorded(3, range(2, 3), lambda *at: 0), lambda rank, step: (100 * (rank + 1), 2))
TOKENS, PASSES = 0, 3


def test_a_unit_is_laid_beside_the_median_of_the_others() -> None:
    kinds = kinds_of([RECORD], PRICE)
    assert kinds == {TOKENS: 10.0, PASSES: 0.0}
    found = loads_of(RECORD, kinds, [0, 1, 2], None)
    assert found == [Load(2, 1000, 2, 2500), Load(2, 2000, 2, 2000), Load(2, 3000, 2, 1500)]
    assert [load.more_flops for load in found] == [-750, 0, 750]


def test_beside_the_row_of_all_others_where_there_is_one() -> None:
    (record,) = with_work(recorded(20, range(2, 3), lambda *at: 0), lambda rank, step: (100 + rank, 1))
    usual = record.sizes.index(0)
    rows = [row for row in range(len(record.sizes)) if row != usual]
    found = loads_of(record, kinds_of([record], PRICE), rows, usual)
    assert found is not None
    assert {load.usual_flops for load in found} == {1090}


def test_what_experts_receive_counts_where_all_rows_know_it() -> None:
    record = replace(RECORD, work=[100, 5, 40, -1, 100, 5, 60, -1, 100, 5, 50, -1])
    first, second, _ = loads_of(record, kinds_of([record], PRICE), [0, 1, 2], None) or []
    assert (first.flops, first.expert_flops, second.expert_flops) == (1000 + 5 + 80, 80, 120)
    assert (first.passes, second.usual_passes) == (1, 1)


@pytest.mark.parametrize(
    "price", [None, {}, {"squared_lengths": 1.0}, {"tokens": 0.0}, {"tokens": "many"}, {"tokens": 1e300}]
)
def test_without_the_flops_of_a_token_nothing_is_known(price: dict | None) -> None:
    assert kinds_of([RECORD], price) == {}
    assert loads_of(RECORD, {}, [0, 1, 2], None) is None


def test_a_step_in_which_a_rank_knows_less_has_no_loads() -> None:
    less = replace(RECORD, work=[-1, -1, -1, 2, *(RECORD.work or [])[4:]])
    kinds = kinds_of([RECORD, RECORD, less], PRICE)
    assert TOKENS in kinds
    assert loads_of(less, kinds, [0, 1, 2], None) is None
    assert kinds_of([replace(RECORD, work=None)], PRICE) == {}
