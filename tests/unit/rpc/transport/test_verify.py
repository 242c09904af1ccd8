"""A product that is right passes, one that is not does not."""

from __future__ import annotations

import pytest
import torch

from flagscale_perf.rpc.transport.verify import is_product

TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def factors(dtype, m=64, k=96, n=80, batch=()):
    torch.manual_seed(3)
    return torch.randn(*batch, m, k).to(dtype), torch.randn(k, n).to(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_right_product_passes_whatever_chance_says(dtype, batch):
    left, right = factors(dtype, batch=batch)
    assert all(is_product(left @ right, left, right, seed=seed) for seed in range(25))


@pytest.mark.parametrize("dtype", TYPES)
def test_a_wrong_one_is_seen_at_least_as_often_as_promised(dtype):
    left, right = factors(dtype)
    for spoil in (lambda p: p[5].roll(1), lambda p: p[5] * 2, lambda p: torch.zeros_like(p[5])):
        product = left @ right
        product[5] = spoil(product)
        passed = sum(is_product(product, left, right, rounds=4, seed=seed) for seed in range(100))
        assert passed <= 100 / 2**4 * 2


def test_one_wrong_entry_far_above_rounding_is_always_seen():
    left, right = factors(torch.float32)
    product = left @ right
    product[3, 4] += 10
    assert not any(is_product(product, left, right, seed=seed) for seed in range(25))


def test_another_shape_and_what_is_no_number_are_refused():
    left, right = factors(torch.float32)
    product = left @ right
    assert not is_product(product[:-1], left, right)
    product[0, 0] = float("nan")
    assert not is_product(product, left, right)


def test_batches_are_checked_product_by_product() -> None:
    left, right = torch.randn(2, 3, 4, 6), torch.randn(2, 3, 6, 5)
    product = left @ right
    assert is_product(product, left, right, seed=1)
    assert is_product(left @ right[0, 0], left, right[0, 0], seed=1)
    product[1, 2, 3, 4] += 1
    assert not is_product(product, left, right, rounds=20, seed=1)


def test_columns_that_cancel_each_other_do_not_make_a_right_product_wrong() -> None:
    torch.manual_seed(5)
    column = torch.randn(64, 1).to(torch.bfloat16)
    left, right = torch.randn(1000, 64).to(torch.bfloat16), torch.cat([column, column * 1.01], dim=1)
    product = left @ right
    assert all(is_product(product, left, right, seed=seed) for seed in range(25))
    product[7, 1] += 100
    assert not is_product(product, left, right, seed=1)
