"""SQL over the tables of many runs, by DuckDB: reads these files alone, within limits, and writes nothing."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flagscale_perf.spine.errors import PerfError, did_you_mean
from flagscale_perf.spine.jsonl import finite
from flagscale_perf.spine.packages import missing
from flagscale_perf.store.tables import TIME

if TYPE_CHECKING:
    import duckdb
    import pyarrow

MEMORY, SPILLED = "2GB", "20GB"
MOST_ROWS = 1_000_000  # of an answer, which Python holds
AGAIN_S = 0.1  # until a query is told once more to end
EXAMPLE = "select run_id, max(iteration_ns) / 1e6 as longest_ms from steps group by run_id"
_COLUMN = re.compile(r'(?:column|Table) "(?P<name>[^"]+)"(?: not found| does not have)|named "(?P<of>[^"]+)"')
_READ = re.compile(r'"table_name":"([^"]*)"')
_VIEW = re.compile(r"Table with name (?P<name>\S+) does not exist")


class Answer(NamedTuple):
    """What a query found.

    Attributes:
        columns: their names.
        rows: values as Python has them.
    """

    columns: list[str]
    rows: list[list[Any]]

    def as_dict(self) -> dict[str, Any]:
        """Its content as JSON-ready data."""
        return dict(finite(self._asdict()))


class Lake:
    """The tables of many runs, to be asked. A kind's table has the kind's name in the schema `records`."""

    def __init__(
        self,
        schemas: Mapping[str, pyarrow.Schema],
        files: Mapping[str, Sequence[Path]],
        views: Mapping[str, str],
    ) -> None:
        """Raises PerfError without DuckDB, FileNotFoundError as `ask`.

        Args:
            schemas: the columns of each kind.
            files: of the kinds that have rows.
            views: SELECTs by the names of the views.
        """
        self._spilled = tempfile.TemporaryDirectory(prefix="flagscale_perf_")
        self._connection = _connected()
        self._columns: dict[str, list[str]] = {}
        self._views = [*views]
        self._paths = [path for each in files.values() for path in each]
        for path in self._paths:
            _check_text(str(path))
        self._do(f"set temp_directory = {quoted(self._spilled.name)}")
        self._do(f"set max_temp_directory_size = {quoted(SPILLED)}")
        self._do(f"set memory_limit = {quoted(MEMORY)}")
        self._do(f"set allowed_directories = [{quoted(self._spilled.name)}]")
        self._do(f"set allowed_paths = [{', '.join(quoted(str(path)) for path in self._paths)}]")
        self._do("set enable_external_access = false")
        self._do("create schema records")
        for kind, schema in schemas.items():
            self._attach(kind, schema, files.get(kind, ()))
        for name, sql in views.items():
            self._do(f"create view main.{name} as {sql}")
            found = self._do(f"select * from main.{name} limit 0")
            self._columns[name] = [each[0] for each in found.description or ()]
        self._do("set search_path = 'main,records'")
        self._do("set lock_configuration = true")

    def __enter__(self) -> Lake:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._spilled.cleanup()

    def _do(self, sql: str) -> duckdb.DuckDBPyConnection:
        """Raises FileNotFoundError where a table is not there any more: DuckDB then looks for a directory of
        that name, which it may not.
        """
        import duckdb

        try:
            return self._connection.execute(sql)
        except (duckdb.IOException, duckdb.PermissionException):
            for path in self._paths:
                path.stat()
            raise

    def _attach(self, kind: str, schema: pyarrow.Schema, files: Sequence[Path]) -> None:
        source = (
            f"read_parquet([{', '.join(quoted(str(path)) for path in files)}], hive_partitioning = false)"
        )
        if not files:
            source = f"no_{kind}"
            self._connection.register(source, schema.empty_table())
        time = f", make_timestamp_ns({TIME}) as time" if TIME in schema.names else ""
        self._do(f'create view records."{kind}" as select *{time} from {source}')
        self._columns[kind] = [*schema.names, *["time"] * bool(time)]

    def ask(self, sql: str) -> Answer:
        """The answer to one SELECT. Raises PerfError for anything else, and for what cannot be answered;
        FileNotFoundError where a table has just been replaced. Ctrl-C ends it at once: DuckDB itself looks
        for that only between its tasks, some of which take minutes, but any thread can end them.
        """
        with ThreadPoolExecutor(1) as worker:
            answer = worker.submit(self._answer, sql)
            try:
                return answer.result()
            finally:
                while not answer.done():  # what comes before a query has begun is not heard
                    self._connection.interrupt()
                    wait([answer], AGAIN_S)

    def _answer(self, sql: str) -> Answer:
        import duckdb

        try:
            statements = self._connection.extract_statements(sql)
            if [each.type for each in statements] != [duckdb.StatementType.SELECT]:
                raise PerfError(f"{sql!r} is not one SELECT; write one such as {EXAMPLE!r}")
            found = self._do(sql)
            rows = [list(map(_plain, row)) for row in found.fetchmany(MOST_ROWS + 1)]
            if len(rows) > MOST_ROWS:
                raise PerfError(
                    f"more than {MOST_ROWS:,} rows; group them or add a limit; `seal` has all records"
                )
            return Answer([each[0] for each in found.description or ()], rows)
        except duckdb.Error as error:
            raise PerfError(self._explained(str(error), sql)) from None

    def _explained(self, message: str, sql: str) -> str:
        if found := _VIEW.search(message):
            name, near = found["name"], did_you_mean(found["name"], self._columns)
            return f"{name!r} is no view{near}; there are {', '.join(self._views)}, and every kind of records"
        if found := _COLUMN.search(message):
            name = found["name"] or found["of"]
            words = set(re.findall(r"\w+", sql.lower()))
            asked = [view for view in self._columns if view in words] or [*self._columns]
            known = [column for view in asked for column in self._columns[view]]
            return f"{name!r} is no column of {' or '.join(asked)}{did_you_mean(name, known)}"
        return message


def asked(sql: str) -> set[str]:
    """The names of the tables and views that a query reads; maybe more. Raises PerfError without DuckDB."""
    _check_text(sql)
    connection = _connected()
    (tree,) = connection.execute("select json_serialize_sql(?)", [sql]).fetchone() or ("",)
    connection.close()
    if found := _READ.findall(tree):
        return set(found)
    return set(re.findall(r"\w+", sql))  # of what is no plain SELECT


def _connected() -> duckdb.DuckDBPyConnection:
    try:
        import duckdb
    except ImportError as error:
        raise missing("duckdb", error, "flagscale-perf query") from None
    return duckdb.connect()


def _check_text(text: str) -> None:
    """Raises PerfError for what is no UTF-8, as a file's name may be: DuckDB takes nothing else."""
    if not text.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise PerfError(f"{text!r} is not UTF-8, which is all that DuckDB reads; write or name it otherwise")


def quoted(text: str) -> str:
    """A text of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _plain(value: Any) -> Any:
    """A number that Python and JSON know; a decimal is a whole number of a record, or was made of some."""
    if isinstance(value, list | tuple):
        return [*map(_plain, value)]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value
