"""Records and names on their way."""

from __future__ import annotations

from flagscale_perf.profile.records import RoofRecord
from flagscale_perf.profile.window import Store
from flagscale_perf.spine.peers.records import NameRecord


def test_a_name_is_kept_once_before_its_use_and_records_are_numbered() -> None:
    kept: list[object] = []
    store = Store(kept.extend)
    later = store.next_number()
    store.add(RoofRecord, roof="copy", per_second=5)
    store.add(RoofRecord, roof="copy", per_second=6)
    store.add(RoofRecord, later, roof="", per_second=7)
    assert kept == []
    store.flush()
    assert kept == [
        NameRecord(0, 1, "copy"),
        RoofRecord(0, 2, 1, 5),
        RoofRecord(0, 3, 1, 6),
        RoofRecord(0, 1, 0, 7),
    ]


def test_of_a_long_name_the_end_is_kept() -> None:
    kept: list[object] = []
    store = Store(kept.extend)
    store.name("x" * 300 + ".layers.7")
    store.flush()
    assert kept == [NameRecord(0, 1, "x" * 191 + ".layers.7")]
