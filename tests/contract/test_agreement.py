"""What every instrument has, it has alike: the state of a session and of a job, its colour, what was read."""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.analysis.instrument import installed, load
from flagscale_perf.rpc.summary import RpcSummary
from flagscale_perf.spine.figures import Table
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import KILLED, NOT_KNOWN, RUNNING, STOPPED, Record, kind_of
from flagscale_perf.store.decoder import decode
from flagscale_perf.trace.records import OperationRecord
from flagscale_perf.trace.summary import TraceSummary
from tests import rpc_sessions, trace_runs
from tests.every_instrument import END_NS, JOBS, WRITERS, being_written, report_of, write, write_job

GOOD = ("completed", STOPPED)
BAD = ("exit 1", "exception ValueError", "interrupted", KILLED)
SUMMARIES: dict[str, Callable[[Any], Any]] = {"trace": TraceSummary, "rpc": RpcSummary}
each = pytest.mark.parametrize("name", WRITERS)


def test_none_is_left_out() -> None:
    assert set(WRITERS) == set(installed())


@each
@pytest.mark.parametrize(("reason", "tone"), [(end, "good") for end in GOOD] + [(end, "bad") for end in BAD])
def test_an_end_has_one_name_and_one_colour(name: str, reason: str, tone: str, tmp_path: Path) -> None:
    report = report_of(name, write(name, tmp_path, reason))
    assert (report.state, report.tone) == (reason, tone)


@each
def test_without_an_end_a_session_runs_while_its_file_is_written(name: str, tmp_path: Path) -> None:
    path = write(name, tmp_path, None)
    assert (report_of(name, path).state, report_of(name, path).tone) == (KILLED, "bad")
    with being_written(path):
        assert (report_of(name, path).state, report_of(name, path).tone) == (RUNNING, "good")


@pytest.mark.parametrize("name", [name for name in WRITERS if load(name).offers("live")])
def test_the_screen_and_the_report_agree(name: str, tmp_path: Path) -> None:
    for reason in (*GOOD, *BAD[:-1], None):
        path = write(name, tmp_path, reason)
        header, *records = map(decode, path.read_bytes().splitlines())
        live = load(name).live(header)
        for record in records:
            live.add(record)
        shown, report = live.report(False, header.start_wall_ns + END_NS), report_of(name, path)
        assert (shown.state, shown.tone) == (report.state, report.tone)


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize(
    ("ends", "state"),
    [
        (("completed", "completed"), "completed"),
        (("completed", None), NOT_KNOWN),  # of another machine, which may go on
        ((None, "completed"), KILLED),
        (("completed", "exit 1"), "exit 1"),
        ((STOPPED, "exception ValueError"), "exception ValueError"),
        ((STOPPED, STOPPED), STOPPED),
    ],
)
def test_a_job_is_as_bad_as_its_worst_machine(
    name: str, ends: tuple[str | None, str | None], state: str, tmp_path: Path
) -> None:
    for path in write_job(name, tmp_path, ends):
        assert report_of(name, path).state == state


@pytest.mark.parametrize("name", JOBS)
def test_a_job_runs_as_long_as_any_machine_does(name: str, tmp_path: Path) -> None:
    first, second = write_job(name, tmp_path, ("completed", None))
    with being_written(second):
        assert report_of(name, first).state == RUNNING


@each
def test_records_are_counted_by_the_kinds_of_the_file(name: str, tmp_path: Path) -> None:
    path = write(name, tmp_path, "completed")
    kinds = Counter(kind_of(type(decode(line))) for line in path.read_bytes().splitlines())
    reading = report_of(name, path).reading
    assert reading is not None and (reading.records, reading.skipped) == (kinds, 0)


def _summary(name: str, records: Iterable[Record]) -> dict[str, Any]:
    """What the writer keeps of a session while it goes on."""
    header, *others = records
    summary = SUMMARIES[name](header)
    for record in others:
        summary.add(record)
    made: dict[str, Any] = json.loads(summary.text())
    return made


def _spread_out(kind: str) -> list[Record]:
    """More operations than are kept exactly, from 1 us to 2 s; every tenth stands for ten."""
    chance, job = random.Random(7), trace_runs.Job()
    process = job.process("Rollout", 101)
    for number in range(3000):
        took_ns = round(1000 * 10 ** (chance.random() * 6.3))
        weight_milli = 1000 if number % 10 else 10_000
        changed = {"total_ns": took_ns, "unit_ns": took_ns // 2, "weight_milli": weight_milli}
        (job.put if kind == "put" else job.get)(process, number * trace_runs.SECOND, [0], **changed)
    return [trace_runs.make_trace_header(), *job.records]


@pytest.mark.parametrize("kind", ["put", "get"])
def test_summary_and_report_of_a_queue_have_the_same_figures(kind: str, tmp_path: Path) -> None:
    records = _spread_out(kind)
    path = tmp_path / "perf_records_20240129_103000.jsonl"
    path.write_bytes(b"".join(map(encode, records)))
    report = report_of("trace", path).content.as_dict()["operations"][kind]
    summary = _summary("trace", records)["operations"][kind]
    total = report["total_ns"]
    assert (summary["recorded"], summary["count"], summary["total_ns"]) == (
        total["count"],
        total["stands_for"],
        total["sum"],
    )
    assert [summary[f"{p}_s"] for p in ("p50", "p95", "p99")] == [
        pytest.approx(total[p] / 1e9, rel=1e-12) for p in ("p50", "p95", "p99")
    ]
    assert summary["size_bytes"] == report["size_bytes"]["sum"]
    stages = {row["stage"]: row["ns"] for row in report["waterfall"]}
    assert {name: summary[f"{name}_ns"] for name in stages} == pytest.approx(stages)


def test_percentiles_lie_within_half_a_percent_of_the_exact_ones() -> None:
    operations = [one for one in _spread_out("put") if isinstance(one, OperationRecord)]
    exact = sorted(one.total_ns for one in operations for _ in range(one.weight_milli // 1000))
    summary = _summary("trace", _spread_out("put"))["operations"]["put"]
    for name, share in (("p50_s", 0.5), ("p95_s", 0.95), ("p99_s", 0.99)):
        true_s = exact[math.ceil(share * len(exact)) - 1] / 1e9
        assert summary[name] == pytest.approx(true_s, rel=0.0051)


def test_summary_and_report_of_calls_have_the_same_figures(tmp_path: Path) -> None:
    path = rpc_sessions.write_run(tmp_path, rpc_sessions.llama_calls())
    summary = _summary("rpc", map(decode, path.read_bytes().splitlines()))
    report = report_of("rpc", path).content.as_dict()
    names = ("calls", "failed", "total_ns", "sent_bytes", "received_bytes", "socket_bytes", "shared_bytes")
    assert set(summary["methods"]) == set(report["methods"])
    for ours, theirs in [
        (summary["overall"], report["overall"]),
        *((summary["methods"][name], report["methods"][name]) for name in summary["methods"]),
    ]:
        assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}
        assert {name: ours[f"{name}_ns"] for name in theirs["stages"]} == {
            name: stage["ns"] for name, stage in theirs["stages"].items()
        }


SIZES = {"K": (1e3, 2.0**10), "M": (1e6, 2.0**20), "G": (1e9, 2.0**30), "T": (1e12, 2.0**40)}


@pytest.mark.parametrize("name", sorted(set(WRITERS) - {"bench", "profile"}))  # without a table of figures
def test_a_prefix_is_a_power_of_ten_and_with_an_i_one_of_two(name: str) -> None:
    """So MB is 10^6 and MiB 2^20 bytes; logs and CSV keep the column names that users were promised."""
    module = import_module(f"flagscale_perf.{name}.figures")
    tables = [one for one in vars(module).values() if isinstance(one, Table)]
    units = {figure.unit for table in tables for figure in table.figures}
    for unit in units:
        if found := re.match(r"([KMGT])(i?)B", unit.name):
            assert unit.divisor == SIZES[found[1]][bool(found[2])], unit
    assert tables
