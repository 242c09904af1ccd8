"""Rows as columns of pandas."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis import frames
from flagscale_perf.analysis.frames import Field, frame_of


def test_only_so_many_rows_are_held_as_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(number, number / 4, number % 2 == 0, "abc"[number % 3]) for number in range(11)]
    whole = frame_of("abcd", rows)
    assert [str(kind) for kind in whole.dtypes[:3]] == ["int64", "float64", "bool"]
    monkeypatch.setattr(frames, "ROWS", 2)
    assert frame_of("abcd", rows).equals(whole)


def test_a_column_that_becomes_text_late_keeps_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "ROWS", 1)
    frame = frame_of(["throttle"], [(None,), ("power",)])
    assert frame["throttle"].isna().tolist() == [True, False]
    assert frame["throttle"][1] == "power"


def test_units_of_fields() -> None:
    assert [Field.of(name) for name in ("start_ns", "size_bytes", "rank")] == [
        ("start_ms", 1e-6),
        ("size_gb", 1e-9),
        ("rank", None),
    ]
    assert Field.of("start_ns").value(None) is None
