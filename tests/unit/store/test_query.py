"""Queries read the tables that they are given, within limits, and a mistake names what was meant."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flagscale_perf.analysis.lake import all_tables
from flagscale_perf.cli import EXIT_INTERRUPTED
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.store import query
from flagscale_perf.store.query import Lake, asked
from flagscale_perf.store.seal import seal
from tests.fakes import make_header, make_step

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("it's [a] *run?") / "perf_records_20240129_103000.jsonl"
    path.write_bytes(b"".join(map(encode, [make_header(), *(make_step(number) for number in range(1, 6))])))
    return path


@pytest.fixture
def lake(run: Path):
    tables = all_tables()
    with Lake(tables.schemas, seal(run, tables).files, {"steps": "select * from records.step"}) as lake:
        yield lake


def test_an_answer(lake: Lake) -> None:
    found = lake.ask(
        "select sum(iteration_ns) as all_ns, max(model_flops), null, 1e300 * 1e10 as big from steps"
    )
    assert found.columns[0] == "all_ns"
    assert found.rows == [[500_000_000, 4_000_000_000_000, None, float("inf")]]
    assert found.as_dict()["rows"][0][3] is None


def test_kinds_are_tables_by_their_names_and_without_rows_empty(lake: Lake) -> None:
    assert lake.ask("select count(*) from step").rows == [[5]]
    assert lake.ask('select count(*) from records."end"').rows == [[0]]
    assert ["time", "TIMESTAMP_NS"] in [row[:2] for row in lake.ask("describe steps").rows]


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("select iteratoin from steps", "'iteratoin' is no column of steps; did you mean iteration"),
        ("select s.iteratoin from steps s", "'iteratoin' is no column of steps; did you mean iteration"),
        (
            "select * from stepz",
            "'stepz' is no view; did you mean step or steps?; there are steps, and every",
        ),
        ("selec 1", 'syntax error at or near "selec"'),
        ("", "'' is not one SELECT; write one such as 'select run_id"),
        ("select 1; select 2", "'select 1; select 2' is not one SELECT"),
    ],
)
def test_a_mistake(lake: Lake, sql: str, says: str) -> None:
    with pytest.raises(PerfError) as caught:
        lake.ask(sql)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from '/etc/passwd'",
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('/etc/hostname')",
        "select * from glob('/etc/*')",
        "select * from read_parquet('https://example.org/x.parquet')",
        "copy (select 1) to '/tmp/flagscale_perf_was_here'",
        "attach '/tmp/flagscale_perf_was_here'",
        "create table here as select 1",
        "drop view steps",
        "set enable_external_access = true",
        "set threads = 99",
        "pragma disable_optimizer",
        "install httpfs",
        "load httpfs",
    ],
)
def test_nothing_else_can_be_read_or_changed(lake: Lake, sql: str) -> None:
    with pytest.raises(PerfError):
        lake.ask(sql)
    assert not Path("/tmp/flagscale_perf_was_here").exists()
    assert lake.ask("select count(*) from steps").rows == [[5]]


def test_memory_is_limited_and_what_does_not_fit_is_an_error(lake: Lake) -> None:
    assert lake.ask("select current_setting('memory_limit')").rows == [["1.8 GiB"]]
    with pytest.raises(PerfError, match="Memory"):
        lake.ask("select list(i::varchar || repeat('x', 900)) from range(100000000) t(i)")


def test_a_table_that_was_replaced_meanwhile_is_told_from_a_mistake(run: Path) -> None:
    tables = all_tables()
    files = seal(run, tables).files
    with pytest.raises(FileNotFoundError):
        Lake(tables.schemas, files | {"step": [run.with_name("gone.parquet")]}, {})


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select runs, 'findings' from modules", {"modules"}),
        (
            'with x as (select * from records.run) select * from x join "findings" using (run_id)',
            {"run", "findings"},
        ),
        ("describe runs", {"runs"}),
        ("selec runs", {"runs"}),
    ],
)
def test_which_tables_a_query_reads(sql: str, names: set[str]) -> None:
    assert names <= asked(sql)
    assert ("findings" in names) == ("findings" in asked(sql))


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) from range(1000000000000)",
        "select sum(a.i * b.i) from range(1000000) a(i), range(1000000) b(i)",
        "select max(x) from (select row_number() over (order by hash(i)) x from range(1000000000) t(i))",
        "select count(*) from (select hash(i), count(*) from range(10000000000) t(i) group by 1)",
        "select i from range(1000000000000) t(i) where i % 1000000007 = 5",
    ],
    ids=["scan", "join", "window", "group", "fetch"],
)
def test_ctrl_c_ends_any_query_at_once(run: Path, sql: str) -> None:
    """Each takes minutes; by itself DuckDB 2.0.1 heeds it in the first and the last alone."""
    with subprocess.Popen(
        [sys.executable, "-c", ASK, str(run), sql],
        stdout=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(run.parent)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's `&` ignores it
    ) as asking:
        assert asking.stdout is not None
        assert asking.stdout.readline() == b"asks\n"
        time.sleep(0.5)  # it has begun, or not yet: both end
        asking.send_signal(signal.SIGINT)
        assert asking.wait(30) == EXIT_INTERRUPTED
    assert not list(run.parent.glob("flagscale_perf_*"))  # where it spills


ASK = """
import sys
from pathlib import Path
from flagscale_perf.cli import main
from flagscale_perf.store import query
ask = query.Lake.ask
def said(lake, sql):
    print("asks", flush=True)
    return ask(lake, sql)
query.Lake.ask = said
sys.exit(main(["query", sys.argv[1], sys.argv[2]]))
"""


def test_what_is_no_text_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PerfError, match=r"select .* is not UTF-8"):
        asked("select '\udcff'")
    with pytest.raises(PerfError, match=r"steps.* is not UTF-8"):
        Lake({}, {"step": [tmp_path / "\udcff" / "steps.parquet"]}, {})


def test_numbers_within_lists_are_plain_too(lake: Lake) -> None:
    (row,) = lake.ask("select [1.5::decimal(9,2)], {'a': [2.00::decimal(9,2)]}, [null, 'x']").rows
    assert str(row) == "[[1.5], {'a': [2]}, [None, 'x']]"


def test_an_answer_that_is_too_long_to_hold_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "MOST_ROWS", 4)
    assert len(lake.ask("select * from steps limit 4").rows) == 4
    with pytest.raises(PerfError, match="^more than 4 rows; group them or add a limit"):
        lake.ask("select * from steps")
