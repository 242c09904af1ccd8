"""The same questions to DuckDB, Ray Data and Spark over 2,000 runs: `python compare.py DIRECTORY [RUNS]`.

Makes runs and tables where the directory is not there, prints how long each engine took, and fails where one
answers otherwise than DuckDB, be it by the last digit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import monotonic, process_time
from typing import Any, NamedTuple

import duckdb
import pyarrow
import pyarrow.types
from lake import PERIOD_WALL_NS, Rows, answer, parts
from pyarrow.parquet import ParquetFile, read_metadata, write_table

HERE = Path(__file__).parent
RUNS = 2000
P95 = """
select run_id, count(*) as steps, quantile_disc(iteration_ns, 0.95) as p95_ns
from steps where warmup = 0 and outcome = 'trained' group by run_id order by run_id
"""
MFU = """
select global_batch_size, count(*) as steps,
    (sum(model_flops)::hugeint * 1000000000000000 // sum(iteration_ns * peak))::bigint as mfu_ppm
from steps join (
    select run_id, global_batch_size, peak_flop_per_s::hugeint * world_size as peak from records.header
) using (run_id)
where warmup = 0 and outcome = 'trained' group by global_batch_size order by global_batch_size
"""
HOSTS = f"""
with compared as (
    select hostname, iteration - first_iteration + 1 as steps,
        work_ns - quantile_disc(work_ns, 0.5) over (partition by run_id, iteration) as more_ns
    from ranks
    where work_ns is not null and at_wall_ns >= {PERIOD_WALL_NS[0]} and at_wall_ns < {PERIOD_WALL_NS[1]}
)
select hostname, sum(steps)::bigint as steps, sum(greatest(more_ns, 0) * steps)::bigint as more_ns
from compared where hostname is not null group by hostname order by more_ns desc, hostname
"""


def main() -> int:
    """Makes, asks and compares; returns the exit status."""
    directory, runs = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else str(RUNS)
    if not directory.exists():
        run(HERE / "make_runs.py", directory, runs)
    seconds = {"seal": timed("-m", "flagscale_perf", "seal", directory)}
    answers = {engine: directory / f"{engine}.json" for engine in ("duckdb", "ray", "spark")}
    questions = {"p95": P95, "mfu": MFU, "hosts": HOSTS}
    begin = monotonic()
    answer({name: partial(ask, directory, sql) for name, sql in questions.items()}, answers["duckdb"])
    seconds["duckdb"] = monotonic() - begin
    for engine in ("ray", "spark"):
        seconds[engine] = timed(HERE / f"on_{engine}.py", directory, answers[engine])
    found = {engine: json.loads(path.read_text(encoding="utf-8")) for engine, path in answers.items()}
    print(table(directory, seconds, found))
    print(scanned(parts(str(directory), "step")))
    different = list(differences(found))
    print("\n".join(different) or "the three engines agree to the last digit")
    return bool(different)


def run(*words: str | Path) -> None:
    """Runs Python with these words."""
    subprocess.run([sys.executable, *map(str, words)], check=True)


def timed(*words: str | Path) -> float:
    """The same; returns seconds."""
    begin = monotonic()
    run(*words)
    return monotonic() - begin


def ask(directory: Path, sql: str) -> Rows:
    """By `flagscale-perf query`."""
    words = [sys.executable, "-m", "flagscale_perf", "query", str(directory), sql, "--format", "json"]
    rows: Rows = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)["rows"]
    return rows


def differences(found: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Where an engine says something else than DuckDB, number and type."""
    for name, asked in found["duckdb"].items():
        for engine in ("ray", "spark"):
            ours, others = asked["rows"], found[engine][name]["rows"]
            if len(ours) != len(others) or not ours:
                yield f"{name}: {len(ours)} rows of DuckDB, {len(others)} of {engine}"
            for mine, other in zip(ours, others, strict=False):
                if json.dumps(mine) != json.dumps(other):
                    yield f"{name}: DuckDB has {mine}, {engine} {other}"


def table(directory: Path, seconds: dict[str, float], found: dict[str, dict[str, Any]]) -> str:
    """Seconds, as the README shows them."""
    steps, ranks = (ParquetSize.of(parts(str(directory), kind)) for kind in ("step", "ranks"))
    lines = [
        f"{steps.files:,} runs, {steps.rows:,} steps and {ranks.rows:,} rows of ranks in "
        f"{steps.mb + ranks.mb:.0f} MB of Parquet; {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}; "
        f"sealing took {seconds['seal']:.0f} s",
        "",
        "| seconds | p95 | mfu | hosts | whole program |",
        "| --- | --- | --- | --- | --- |",
    ]
    for engine, asked in found.items():
        each = " | ".join(f"{question['seconds']:.1f}" for question in asked.values())
        lines.append(f"| {engine} | {each} | {seconds[engine]:.0f} |")
    return "\n".join([*lines, ""])


def scanned(paths: list[str]) -> str:
    """How fast DuckDB reads where runs are long: the p95 of the steps as one file, ten times over."""
    steps = pyarrow.concat_tables([ParquetFile(path).read() for path in paths] * 10).combine_chunks()
    integers = [field.name for field in steps.schema if pyarrow.types.is_int64(field.type)]
    others = [name for name in steps.column_names if name not in integers]
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        delta = dict.fromkeys(integers, "DELTA_BINARY_PACKED")  # as `seal` writes them
        write_table(steps, file.name, compression="zstd", use_dictionary=others, column_encoding=delta)
        begin, size_mb = process_time(), Path(file.name).stat().st_size / 1e6
        duckdb.sql(P95.replace("from steps", f"from '{file.name}'")).fetchall()
        rate = size_mb / (process_time() - begin)
    of = f"{len(steps):,} steps in one file of {size_mb:.0f} MB"
    return f"DuckDB's p95 over {of}: {rate:.0f} MB a second of CPU\n"


class ParquetSize(NamedTuple):
    """What tables of one kind have together."""

    files: int
    rows: int
    mb: float

    @classmethod
    def of(cls, paths: list[str]) -> ParquetSize:
        """Reads their footers."""
        rows = sum(read_metadata(path).num_rows for path in paths)
        return cls(len(paths), rows, sum(Path(path).stat().st_size for path in paths) / 1e6)


if __name__ == "__main__":
    sys.exit(main())
