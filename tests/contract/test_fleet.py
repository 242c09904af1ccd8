"""What the programs of examples/fleet, and others like them, rely on: names, columns and types of the tables.
What the program for Ray makes of them, without Ray, is what `query` answers; `make fleet` asks the engines.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pytest

from flagscale_perf.analysis.lake import ask
from flagscale_perf.cli import main
from tests.conftest import REPO

parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("duckdb")

PART = re.compile(
    r"run_\d+/cache/kind=(?P<kind>\w+)/host=(?P<host>[^/]+)/part=[^/]+-[0-9a-f]+-[0-9a-f]+\.parquet"
)
RUN = {"run_id": "string", "session_id": "string", "host": "string"}
TYPES = {  # of the columns that the programs read
    "header": RUN | {"global_batch_size": "int64", "peak_flop_per_s": "double", "world_size": "int64"},
    "node": RUN | {"hostname": "string", "rank": "int64"},
    "ranks": RUN | dict.fromkeys(("rank", "first_iteration", "iteration", "work_ns"), "int64"),
    "step": RUN
    | dict.fromkeys(("iteration", "warmup", "iteration_ns", "at_wall_ns"), "int64")
    | {"outcome": "string", "model_flops": "decimal128(38, 0)"},
}
OUTSIDE, GROWN, SLOW = 10, 400, 424  # of the period; sealed while it went on; on the slow host


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, ModuleType]]:
    """The programs, as if there was Ray."""
    names = ("lake", "make_runs", "on_ray", "compare")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REPO / "examples/fleet"))
        for name in ("ray", "ray.cluster_utils", "ray.data"):
            patch.setitem(sys.modules, name, MagicMock())
        yield {name: importlib.import_module(name) for name in names}
    for name in names:
        del sys.modules[name]


@pytest.fixture(scope="module")
def fleet(modules: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs, sealed; of one the first nine tenths before the rest was there."""
    directory = tmp_path_factory.mktemp("fleet")
    paths = {number: modules["make_runs"].write(directory, number) for number in (OUTSIDE, GROWN, SLOW)}
    lines = paths[GROWN].read_bytes().splitlines(keepends=True)
    paths[GROWN].write_bytes(b"".join(lines[: len(lines) * 9 // 10]))
    assert main(["seal", str(directory)]) == 0
    paths[GROWN].write_bytes(b"".join(lines))
    assert main(["seal", str(directory)]) == 0
    return directory


def test_each_table_has_the_columns_and_stands_where_they_look(fleet: Path) -> None:
    kinds = set()
    for path in fleet.glob("**/*.parquet"):
        found = PART.fullmatch(str(path.relative_to(fleet)))
        assert found, path
        file = parquet.ParquetFile(path)
        types = {field.name: str(field.type) for field in file.schema_arrow}
        assert types.items() >= TYPES.get(found["kind"], RUN).items(), path
        assert set(file.read(["host"])["host"].to_pylist()) <= {found["host"]}  # without findings, no row
        kinds.add(found["kind"])
    assert kinds == {*TYPES, "interval", "end", "run", "finding"}


def test_integers_are_written_in_a_way_that_engines_read(fleet: Path) -> None:
    for path in fleet.glob("**/kind=step/**/*.parquet"):
        group = parquet.ParquetFile(path).metadata.row_group(0)
        columns = {each.path_in_schema: each for each in map(group.column, range(group.num_columns))}
        times = columns["iteration_ns"]
        assert (times.physical_type, times.compression) == ("INT64", "ZSTD")
        assert set(times.encodings) == {"DELTA_BINARY_PACKED", "RLE"}


def test_the_parts_of_a_run_are_found_together(fleet: Path, modules: dict[str, ModuleType]) -> None:
    found = modules["lake"].runs(str(fleet), *TYPES)
    assert sorted(len(run["step"]) for run in found) == [1, 1, 2]
    assert [len(run["header"]) for run in found] == [1, 1, 1]
    ids = [
        {
            value
            for kind in TYPES
            for value in modules["on_ray"].read(run, kind, "run_id")
            for value in value.values()
        }
        for run in found
    ]
    assert [len(each) for each in ids] == [1, 1, 1]


def test_a_directory_of_any_name_is_looked_into(tmp_path: Path, modules: dict[str, ModuleType]) -> None:
    part = tmp_path / "a[b]*/cache/kind=step/host=h/part=s-c-1.parquet"
    part.parent.mkdir(parents=True)
    part.touch()
    assert modules["lake"].parts(str(part.parents[3]), "step") == [str(part)]


@pytest.mark.parametrize("question", ["p95", "mfu", "hosts"])
def test_answers_are_those_of_query(
    fleet: Path, modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    on_ray, compare = modules["on_ray"], modules["compare"]
    runs = modules["lake"].runs(str(fleet), *TYPES)
    monkeypatch.setattr(on_ray, "by_run", lambda function: [row for run in runs for row in function(run)])
    answer = ask(fleet, getattr(compare, question.upper()), pytest.fail)
    assert [list(row) for row in answer.rows] == getattr(on_ray, question)()
    if question == "p95":
        assert len(answer.rows) == 3
    if question == "hosts":
        assert answer.rows[0][0] == modules["make_runs"].SLOW_HOST


def test_another_last_digit_is_told(modules: dict[str, ModuleType]) -> None:
    found = {engine: {"p95": {"rows": [["run", 100, 7]]}} for engine in ("duckdb", "ray", "spark")}
    assert [*modules["compare"].differences(found)] == []
    found["spark"] = {"p95": {"rows": [["run", 100, 7.0]]}}
    assert [*modules["compare"].differences(found)] == [
        "p95: DuckDB has ['run', 100, 7], spark ['run', 100, 7.0]"
    ]
    found["ray"] = {"p95": {"rows": []}}
    assert "p95: 1 rows of DuckDB, 0 of ray" in [*modules["compare"].differences(found)]
