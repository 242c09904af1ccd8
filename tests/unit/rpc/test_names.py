"""Names of methods as users write them."""

from __future__ import annotations

import pytest

from flagscale_perf.rpc.names import methods_of, recorded_name
from flagscale_perf.spine.errors import PerfError


@pytest.mark.parametrize("given", ["BatchLinear, Matmul,Matmul", ["BatchLinear", "Matmul"]])
def test_a_list_is_one_however_it_is_written(given) -> None:
    assert methods_of(given) == ["BatchLinear", "Matmul"]


@pytest.mark.parametrize("given", ["", (), []])
def test_none_is_all(given) -> None:
    assert methods_of(given) == []


@pytest.mark.parametrize("given", ["a,,b", [""]])
def test_an_empty_name_is_refused(given) -> None:
    with pytest.raises(PerfError, match="has an empty name; write names, such as Lookup,Matmul"):
        methods_of(given)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("pkg.Service/Call", "pkg.Service/Call"),
        ("", "-"),
        ("x" * 24, "x" * 24),
        ("/inference.v1.Gpu/BatchLinear", "/infere~.Gpu/BatchLinear"),
        ("矩阵" * 9, "矩阵~阵矩阵矩阵"),
        ("\ud800", "?"),
        (7, "7"),
    ],
)
def test_a_name_of_any_form_is_recorded_as_far_as_there_is_room(name, kept) -> None:
    made = recorded_name(name)
    assert len(made.encode()) <= 24
    assert made == kept
