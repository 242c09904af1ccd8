"""A mark is taken apart into what it was made of."""

from __future__ import annotations

from flagscale_perf.device.marks import END, kind_of, start_of, stop_of, time_of

FOUR_YEARS_NS = 4 * 365 * 86_400 * 10**9


def test_kind_and_time_of_a_mark() -> None:
    for kind in (start_of(0), stop_of(0), start_of(30), stop_of(30), END):
        assert (kind_of(kind + FOUR_YEARS_NS), time_of(kind + FOUR_YEARS_NS)) == (kind, FOUR_YEARS_NS)


def test_every_kind_is_another_and_fits_a_positive_64_bit_integer() -> None:
    kinds = [kind(number) for number in range(31) for kind in (start_of, stop_of)]
    assert len({*kinds, END}) == 63
    assert max(*kinds, END) + FOUR_YEARS_NS < 2**63
