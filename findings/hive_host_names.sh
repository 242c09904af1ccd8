#!/usr/bin/env bash
# A lake partitioned by host (host=NAME/): what a container's name is read as depends on the engine, and on which other hosts are there.
# Docker's default host name is 12 hexadecimal digits; one in 280 has digits and a single "e" inside, and reads as a number.
#
# Guess before the run: DuckDB types partition keys and reads host=007 as 7, as the others do; names with an "e" stay texts everywhere but
# in Polars, which keeps them apart as floats.
# Seen (DuckDB 2.0.1, polars 2.1.0, pyarrow 26.0.1):
#   host=007 alone                 DuckDB the text '007'; polars and pyarrow the integer 7; with host=n1 beside it, all three the text
#   host=0x1f alone                DuckDB and pyarrow the integer 31, polars the text
#   12345678e901 and 98765432e100  polars: inf and 9.8765432e107; DuckDB and pyarrow: the texts
#   12345678e901 and 55555555e555  polars: both inf, so that grouping by host makes ONE host of two; DuckDB and pyarrow: two texts
# What keeps names: hive_types_autocast=false (DuckDB), hive_schema (polars; tried here), a schema for the
# partitioning (pyarrow); or a letter in front of every name.
#
# Installs the three into a temporary directory. Exit status 0: as stated here; 1: it has changed.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 polars==2.1.0 pyarrow==26.0.1
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import os
import shutil
import sys

import duckdb
import polars
import pyarrow
import pyarrow.dataset
import pyarrow.parquet


def lake(*hosts: str) -> dict[str, list]:
    """The hosts as each engine reads them, sorted as texts."""
    shutil.rmtree("lake", ignore_errors=True)
    for host in hosts:
        os.makedirs(f"lake/host={host}")
        pyarrow.parquet.write_table(pyarrow.table({"step": [1]}), f"lake/host={host}/part.parquet")
    found = {
        "duckdb": [host for (host,) in duckdb.sql("select host from read_parquet('lake/*/*.parquet', hive_partitioning=true)").fetchall()],
        "polars": polars.scan_parquet("lake", hive_partitioning=True).collect()["host"].to_list(),
        "pyarrow": pyarrow.dataset.dataset("lake", partitioning="hive").to_table()["host"].to_pylist(),
    }
    sorted_hosts = {name: sorted(values, key=str) for name, values in found.items()}
    print(*hosts, sorted_hosts, sep="  ")
    return sorted_hosts


containers = ["12345678e901", "55555555e555"]
inf = float("inf")
seen = [
    lake("007"),
    lake("007", "n1"),
    lake("0x1f"),
    lake("12345678e901", "98765432e100"),
    lake(*containers),
    polars.scan_parquet("lake", hive_partitioning=True).group_by("host").len().collect().height,
    polars.scan_parquet("lake", hive_partitioning=True, hive_schema={"host": polars.String}).collect()["host"].sort().to_list(),
]
print("hosts in Polars' group_by:", seen[5], "; with hive_schema:", seen[6])
names = ["007", "n1"]
expected = [
    {"duckdb": ["007"], "polars": [7], "pyarrow": [7]},
    {"duckdb": names, "polars": names, "pyarrow": names},
    {"duckdb": [31], "polars": ["0x1f"], "pyarrow": [31]},
    {"duckdb": ["12345678e901", "98765432e100"], "polars": [9.8765432e107, inf], "pyarrow": ["12345678e901", "98765432e100"]},
    {"duckdb": containers, "polars": [inf, inf], "pyarrow": containers},
    1,
    containers,
]
sys.exit(seen != expected)
PYTHON
