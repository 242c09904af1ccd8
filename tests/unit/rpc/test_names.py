"""Names of methods as users write them."""

from __future__ import annotations

import pytest

from flagscale_perf.rpc.names import methods_of
from flagscale_perf.spine.errors import PerfError


@pytest.mark.parametrize("given", ["BatchLinear, Matmul,Matmul", ["BatchLinear", "Matmul"]])
def test_a_list_is_one_however_it_is_written(given) -> None:
    assert methods_of(given) == ["BatchLinear", "Matmul"]


@pytest.mark.parametrize("given", ["", (), []])
def test_none_is_all(given) -> None:
    assert methods_of(given) == []


@pytest.mark.parametrize("given", ["Batch Linear", "a,,b", "x" * 25, "1st", "\n"])
def test_what_no_method_is_called_is_refused(given) -> None:
    with pytest.raises(PerfError, match="is not a method name"):
        methods_of(given)
