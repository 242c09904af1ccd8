#!/usr/bin/env bash
# DuckDB 2.0.1, read_json: a column that is integer in the first 20,480 lines stays BIGINT; fractions that come later are ROUNDED, without
# an error or a warning. A training's log does this: a gradient norm of 0 or a loss scale of 1 for thousands of steps, then 0.5.
#
# Guess before the run: an error that names the line, as for a text in such a column.
# Seen: 0.5 -> 0, 1.75 -> 2, 2.5 -> 2 (half to even), type BIGINT; a text in the same place does raise. Polars 2.1.0 raises for the same file; pyarrow
# 26.0.1 gives float64 and the right values; DuckDB itself does with sample_size=-1, or with the column's type given.
#
# Installs duckdb, polars and pyarrow into a temporary directory. Exit status 0: as stated here; 1: it has changed.
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

INTEGERS, LATE = 30_000, [0.5, 1.75, 2.5]
with open("log.jsonl", "w") as file:
    for step, scale in enumerate([1] * INTEGERS + LATE):
        print(json.dumps({"step": step, "loss_scale": scale}), file=file)
with open("text.jsonl", "w") as file:
    for step, scale in enumerate([1] * INTEGERS + ["half"]):
        print(json.dumps({"step": step, "loss_scale": scale}), file=file)


def last(source: str) -> tuple[str, list[float]]:
    found = duckdb.sql(f"select loss_scale from {source} where step >= {INTEGERS} order by step")
    return str(found.types[0]), [value for (value,) in found.fetchall()]


def refuses(read) -> bool:
    try:
        read()
    except Exception as error:
        print(f"  {type(error).__name__}: {str(error).splitlines()[0][:100]}")
        return True
    return False


seen = {
    "duckdb": last("read_json('log.jsonl')"),
    "duckdb, sample_size=-1": last("read_json('log.jsonl', sample_size=-1)"),
    "duckdb, type given": last("read_json('log.jsonl', columns={step: 'BIGINT', loss_scale: 'DOUBLE'})"),
    "duckdb, a late text": refuses(lambda: duckdb.sql("select count(loss_scale) from read_json('text.jsonl')").fetchall()),
    "polars": refuses(lambda: polars.read_ndjson("log.jsonl")),
    "pyarrow": pyarrow.json.read_json("log.jsonl")["loss_scale"][INTEGERS:].to_pylist(),
}
for name, found in seen.items():
    print(f"{name}: {found}")
expected = {
    "duckdb": ("BIGINT", [0, 2, 2]),
    "duckdb, sample_size=-1": ("DOUBLE", LATE),
    "duckdb, type given": ("DOUBLE", LATE),
    "duckdb, a late text": True,
    "polars": True,
    "pyarrow": LATE,
}
sys.exit(seen != expected)
PYTHON
