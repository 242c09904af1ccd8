"""What has records of its own is put once, or in as many records as it takes."""

from __future__ import annotations

from typing import Any

import pytest

from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.trace import side
from flagscale_perf.trace.records import KeysRecord, RowsRecord
from flagscale_perf.trace.side import KEYS_ROOM, Side


@pytest.fixture
def records() -> list[Any]:
    return []


def test_names_are_bounded(records: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side, "MOST_NAMES", 2)
    made = Side(records.append)
    assert [made._name(text) for text in "abbcab"] == [1, 2, 2, 3, 4, 5]
    assert records == [NameRecord(0, number, text) for number, text in enumerate("abcab", 1)]


def test_too_many_ranges_are_cut_and_say_so(records: list[Any]) -> None:
    Side(records.append)._put_ranges(1, tuple(range(2000)))
    assert [record.is_cut for record in records if isinstance(record, RowsRecord)] == [0] * 63 + [1]


def test_keys_take_as_many_records_as_they_need(records: list[Any]) -> None:
    Side(records.append)._put_keys(5, [(row, 1000 + row) for row in range(KEYS_ROOM)], "train")
    assert [type(record) for record in records] == [NameRecord, KeysRecord, KeysRecord]
    assert records[1][:3] == (0, 1, 5)
    assert records[1].keys + records[2].keys == tuple(
        n for row in range(KEYS_ROOM) for n in (row, 1000 + row)
    )
