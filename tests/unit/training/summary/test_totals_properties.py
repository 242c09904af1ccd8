"""The summary is the same however often it was asked for on the way, and strict JSON whatever was
recorded.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import Record
from flagscale_perf.store.decoder import decode
from flagscale_perf.training.summary.totals import RunTotals
from tests.fakes import make_header
from tests.strategies import any_record, json_values, runs


def fold(records: list[Record]) -> RunTotals:
    totals = RunTotals(make_header())
    for record in records:
        totals.add(record)
    return totals


@given(runs(), st.data())
def test_folding_a_part_looking_and_folding_the_rest_equals_folding_all(
    records: list[Record], data: st.DataObject
) -> None:
    seen_until = data.draw(st.integers(0, len(records)))
    totals = fold(records[:seen_until])
    totals.result()
    for record in records[seen_until:]:
        totals.add(record)
    assert totals.result() == fold(records).result()


@given(runs())
def test_a_run_read_back_from_its_file_gives_the_writer_s_summary(records: list[Record]) -> None:
    assert fold([decode(encode(record)) for record in records]).result() == fold(records).result()


@given(st.lists(any_record, max_size=8))
def test_of_any_records_the_summary_is_strict_json_with_the_same_keys(records: list[Record]) -> None:
    empty = fold([]).result().as_dict()
    totals = fold(records)
    summary = totals.result().as_dict()
    assert json.loads(totals.text(), parse_constant=pytest.fail) == json.loads(json.dumps(summary))
    assert summary.keys() == empty.keys()
    for block in (
        "session_info",
        "final_statistics",
        "totals",
        "phases",
        "ranks",
        "memory",
        "hardware",
        "goodput",
    ):
        assert summary[block].keys() == empty[block].keys()


@given(
    st.dictionaries(st.sampled_from(sorted(make_header().facts)), json_values(2)),
    st.lists(any_record, max_size=4),
)
def test_any_facts_make_a_summary(facts, records: list[Record]) -> None:
    header = make_header()
    totals = RunTotals(replace(header, facts=header.facts | facts))
    for record in records:
        totals.add(record)
    json.loads(totals.text(), parse_constant=pytest.fail)
