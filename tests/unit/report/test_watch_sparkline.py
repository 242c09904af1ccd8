"""Numbers become bars of one line, and squeezing them loses no peak."""

from __future__ import annotations

import pytest

from flagscale_perf.report.watch import sparkline, squeezed


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ([], 8, ""),
        ([None, None], 8, "  "),
        ([5.0, 5.0], 8, "▄▄"),
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([100, 0, 7], 2, "▁█"),
        ([1, None, 2], 8, "▁ █"),
        ([1, 2], 0, ""),
    ],
)
def test_bars_from_the_lowest_to_the_highest(values, width, line) -> None:
    assert sparkline(values, width) == line


def test_squeezing_loses_no_peak() -> None:
    assert squeezed([1, 9, 2, 3, None, None, 4], 4) == [9, 3, None, 4]
    assert squeezed([1, 2], 8) == [1, 2]
    assert squeezed([], 8) == []
