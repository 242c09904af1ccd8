#!/usr/bin/env bash
# A counter of 64 bits that says "no value" by 2**64 - 1 (NVML does for values that a device does not have) changes what its JSON lines are
# read as, in each engine otherwise. pyarrow 26.0.1 turns the whole column into float64: exact counts beside it lose their last digits.
#
# Guess before the run: pyarrow and polars raise (no int64 holds it), DuckDB takes UBIGINT.
# Seen, for the bytes 9007199254740993 (2**53 + 1) and the marker in one column:
#   pyarrow 26.0.1   double; 9007199254740992, one byte less, without a word
#   polars 2.1.0     Int128, exact
#   DuckDB 2.0.1     HUGEINT, exact; and a Parquet file that DuckDB writes of it is DOUBLE: 9007199254740992 again
#   the marker behind 30,000 ordinary lines: DuckDB and polars raise, pyarrow still gives doubles
#
# Installs the three into a temporary directory. Exit status 0: as stated here; 1: it has changed.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 polars==2.1.0 pyarrow==26.0.1
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import json
import sys

import duckdb
import polars
import pyarrow.json
import pyarrow.parquet

COUNT, NO_VALUE, ORDINARY = 2**53 + 1, 2**64 - 1, 30_000


def write(name: str, counts: list[int]) -> None:
    with open(name, "w") as file:
        for step, count in enumerate(counts):
            print(json.dumps({"step": step, "sent_bytes": count}), file=file)


write("log.jsonl", [COUNT, NO_VALUE])
write("late.jsonl", [COUNT] * ORDINARY + [NO_VALUE])


def refuses(read) -> bool:
    try:
        read()
    except Exception as error:
        print(f"  {type(error).__name__}: {str(error).splitlines()[0][:110]}")
        return True
    return False


table, frame = pyarrow.json.read_json("log.jsonl"), polars.read_ndjson("log.jsonl")
found = duckdb.sql("select sent_bytes from read_json('log.jsonl') order by step")
duckdb.sql("copy (select * from read_json('log.jsonl')) to 'log.parquet'")
written = pyarrow.parquet.read_table("log.parquet")
seen = {
    "pyarrow": (str(table.schema.field("sent_bytes").type), int(table["sent_bytes"][0].as_py())),
    "polars": (str(frame.schema["sent_bytes"]), frame["sent_bytes"][0]),
    "duckdb": (str(found.types[0]), found.fetchall()[0][0]),
    "duckdb's Parquet": (str(written.schema.field("sent_bytes").type), int(written["sent_bytes"][0].as_py())),
    "late, pyarrow": int(pyarrow.json.read_json("late.jsonl")["sent_bytes"][0].as_py()),
    "late, polars": refuses(lambda: polars.read_ndjson("late.jsonl")),
    "late, duckdb": refuses(lambda: duckdb.sql("select count(sent_bytes) from read_json('late.jsonl')").fetchall()),
}
for name, what in seen.items():
    print(f"{name}: {what}")
expected = {
    "pyarrow": ("double", COUNT - 1),
    "polars": ("Int128", COUNT),
    "duckdb": ("HUGEINT", COUNT),
    "duckdb's Parquet": ("double", COUNT - 1),
    "late, pyarrow": COUNT - 1,
    "late, polars": True,
    "late, duckdb": True,
}
sys.exit(seen != expected)
PYTHON
