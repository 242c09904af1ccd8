"""SQL over the tables of many runs, by DuckDB: views that only read these files, with limits, and nothing else."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flagscale_perf.spine.errors import PerfError, did_you_mean
from flagscale_perf.spine.jsonl import finite
from flagscale_perf.spine.packages import missing
from flagscale_perf.spine.records import KINDS
from flagscale_perf.store.tables import schema_of

if TYPE_CHECKING:
    import duckdb

MEMORY, MAX_SPILLED = "2GB", "20GB"
_UNKNOWN = re.compile(r'(?:Referenced column|Table with name) "?(?P<name>\w+)"?')


class Answer(NamedTuple):
    """What a query found.

    Attributes:
        names: of the columns.
        rows: of values of Python.
    """

    names: list[str]
    rows: list[tuple[Any, ...]]

    def as_dict(self) -> dict[str, Any]:
        """Its content as JSON-ready data."""
        return dict(finite({"columns": self.names, "rows": self.rows}))


class Lake:
    """The tables of many runs, to be asked. Nothing but them can be read, and nothing be written."""

    def __init__(
        self, parts: Mapping[str, Sequence[Path]], views: Mapping[str, str], threads: int | None = None
    ) -> None:
        """Args: files by kind; the kind that each view shows."""
        self._temporary = tempfile.TemporaryDirectory(prefix="flagscale_perf_")
        self._connection = _connection({"memory_limit": MEMORY, **({"threads": threads} if threads else {})})
        self.views: dict[str, list[str]] = {}
        paths = [str(path) for files in parts.values() for path in files]
        self._do(f"set temp_directory = {_quoted(self._temporary.name)}")
        self._do(f"set max_temp_directory_size = '{MAX_SPILLED}'")
        self._do(f"set allowed_paths = [{', '.join(map(_quoted, paths))}]")
        self._do(f"set allowed_directories = [{_quoted(self._temporary.name)}]")
        self._do("set enable_external_access = false")
        for kind in KINDS:
            self._attach(kind, parts.get(kind, ()))
        for view, kind in views.items():
            if view != kind:
                self._do(f"create view {view} as select * from {kind}")
                self.views[view] = self.views[kind]
        self._do("set lock_configuration = true")

    def _do(self, sql: str) -> None:
        self._connection.execute(sql)

    def _attach(self, kind: str, files: Sequence[Path]) -> None:
        schema = schema_of(KINDS[kind])
        source = (
            f"read_parquet([{', '.join(_quoted(str(path)) for path in files)}], hive_partitioning = false)"
        )
        if not files:
            self._connection.register(f"_empty_{kind}", schema.empty_table())
            source = f"_empty_{kind}"
        time = ", make_timestamp_ns(at_wall_ns) as time" if "at_wall_ns" in schema.names else ""
        self._do(f'create view "{kind}" as select *{time} from {source}')
        self.views[kind] = [*schema.names, *(["time"] if time else [])]

    def ask(self, sql: str) -> Answer:
        """The answer to one SELECT. Raises PerfError for anything else, and where it cannot be answered."""
        import duckdb

        try:
            statements = self._connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type not in (
                duckdb.StatementType.SELECT,
                duckdb.StatementType.EXPLAIN,
            ):
                raise PerfError(
                    f"{sql!r} is not one SELECT; write, for example, 'select * from steps limit 10'"
                )
            found = self._connection.execute(statements[0])
            return Answer([each[0] for each in found.description or ()], found.fetchall())
        except duckdb.Error as error:
            raise PerfError(self._explained(str(error))) from None

    def _explained(self, message: str) -> str:
        found = _UNKNOWN.search(message)
        if found is None:
            return message
        columns = {column for names in self.views.values() for column in names}
        known = columns if "column" in found[0] else set(self.views)
        what = "a column" if "column" in found[0] else "a view"
        return f"{found['name']!r} is not {what}{did_you_mean(found['name'], known)}"

    def close(self) -> None:
        """Gives memory and files back."""
        self._connection.close()
        self._temporary.cleanup()


def _connection(config: dict[str, Any]) -> duckdb.DuckDBPyConnection:
    try:
        import duckdb
    except ImportError as error:
        raise missing("duckdb", error, "flagscale-perf query") from None
    return duckdb.connect(config=config)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
