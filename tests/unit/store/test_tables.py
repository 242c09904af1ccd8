"""Record types as tables: columns from type hints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from flagscale_perf.analysis.lake import all_tables
from flagscale_perf.store.tables import RUN, TIME, Tables, run_id_of, table_of
from tests.fakes import make_header

pyarrow = pytest.importorskip("pyarrow")


def types_of(kind: str) -> dict[str, str]:
    return {field.name: str(field.type) for field in all_tables().schemas[kind]}


def test_a_step() -> None:
    found = types_of("step")
    assert [*found][:3] == [*RUN]
    assert [*found][-1] == TIME
    assert {found[name] for name in found if name.endswith(("_ns", "_bytes"))} == {"int64"}
    assert found["model_flops"] == "decimal128(38, 0)"
    assert found["outcome"] == "string"


def test_an_interval_has_its_figures_beside_its_fields() -> None:
    found = types_of("interval")
    assert (found["mfu"], found["tokens_per_s"], found["iteration_ms"]) == ("double",) * 3
    assert found["phases_ns"] == "string"


def test_a_header_has_its_facts() -> None:
    found = types_of("header")
    assert (found["world_size"], found["peak_flop_per_s"], found["rehearsal"]) == ("int64", "double", "bool")
    assert (found["facts"], found["facts_host"], found["pid"]) == ("string", "string", "int64")
    assert "model" not in found


def test_lists_are_rows_where_they_go_together_and_else_lists() -> None:
    assert types_of("node")["rank"] == "int64"
    assert types_of("captured")["marks"].startswith("list<")


def test_texts_stand_for_their_numbers_and_no_name_is_taken_twice() -> None:
    assert types_of("tq_operation")["partition"] == "string"
    assert types_of("profile_rank")["profile_rank_host"] == "string"
    for kind, schema in all_tables().schemas.items():
        assert len(set(schema.names)) == len(schema.names), kind


def test_tables_of_several_instruments_are_one() -> None:
    both = Tables(views={"a": "select 1"}) | Tables(views={"b": "select 2"})
    assert both.views == {"a": "select 1", "b": "select 2"}
    assert both.digest == Tables().digest != all_tables().digest


@dataclass
class Row:
    title: str
    parts: list[dict[str, Any]]
    cost_s: float | None


def test_rows_about_a_session() -> None:
    header = make_header()
    found = table_of([Row], [(header, {"title": "half \ud800", "parts": [{"a": 1}]})]).to_pylist()
    assert found == [
        {
            "run_id": run_id_of(header),
            "session_id": header.session_id,
            "host": "node0",
            "title": "half \\ud800",
            "parts": '[{"a":1}]',
            "cost_s": None,
        }
    ]
    assert table_of([Row], []).num_rows == 0
