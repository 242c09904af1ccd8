"""The recipes of docs/query.md answer what they say, over recorded runs with known answers."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.analysis.lake import ask
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.training.ranks.kept import KeptBlocks
from tests import profile_runs, rpc_sessions, trace_runs
from tests.fakes import MS
from tests.synthetic import Plan, node_record, ranks_record, records_of
from tests.unit.training.ranks.test_exchange import line, make_block

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")
PAGE = (Path(__file__).parents[2] / "docs/query.md").read_text()
RECIPES = re.findall(r"^([^\n]+:)\n\n```sql\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
STEPS, LATE_MS = 200, 120
_WHOLE_S = sum(1 + number % 3 * 0.002 for number in range(2, STEPS + 1))
MFU = (STEPS - 1) * 3.2 / (8 * _WHOLE_S)  # 40 % but for what is not even
PLANS = {
    "even": Plan(
        steps=STEPS,
        also=[
            node_record(hostname="node7", ranks=[4, 5, 6, 7]),
            node_record(ranks=[0, 1, 2, 3]),
            ranks_record(40, work_ns=[950 * MS] * 5 + [1050 * MS] + [950 * MS] * 2),
        ],
    ),
    "late": Plan(
        steps=STEPS,
        facts={"global_batch_size": 16},
        extra=lambda number: {"data_loading_ns": LATE_MS * MS},
    ),
}


def keep_blocks(directory: Path, start_ns: int) -> None:
    """Two blocks of rank 4711, an hour and a day after the start, and one of another rank."""
    kept = KeptBlocks(directory, start_ns, 10**9)
    for hours, rank, number in ((1, 4711, 1), (1, 5, 1), (24, 4711, 2)):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("time.time_ns", lambda after=hours: start_ns + after * 3600 * 10**9)
            kept.add("node7", [line(make_block(rank, number)._replace(work_ns=90 * MS, wait_ns=10 * MS))])
    assert kept.close() == []


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fleet = tmp_path_factory.mktemp("fleet")
    for name, plan in PLANS.items():
        header, *records = records_of(plan)
        path = fleet / name / "perf_records_20240129_103000.jsonl"
        path.parent.mkdir()
        path.write_bytes(b"".join(map(encode, [replace(header, host=name), *records])))
        keep_blocks(path.parent, header.start_wall_ns)
    for write in (
        lambda directory: rpc_sessions.write_run(directory, rpc_sessions.llama_calls()),
        trace_runs.pipeline().write,
        profile_runs.make_profile().write,
    ):
        (fleet / f"other{len(list(fleet.iterdir()))}").mkdir()
        write(max(fleet.iterdir()))
    return fleet


def answers(fleet: Path, begin: str) -> list[list[Any]]:
    (sql,) = (sql for title, sql in RECIPES if title.startswith(begin))
    return ask(fleet, sql, pytest.fail).rows


def test_there_are_ten() -> None:
    assert len(RECIPES) == 10


def test_percentiles(fleet: Path) -> None:
    rows = answers(fleet, "The 95th percentile")
    assert sorted(row[1:] for row in rows) == [
        [datetime(2024, 1, 29, 10), pytest.approx(1004)],
        [datetime(2024, 1, 29, 10), pytest.approx(1004 + LATE_MS)],
    ]


def test_mfu_by_batch(fleet: Path) -> None:
    rows = answers(fleet, "MFU against")
    late = MFU / (1 + LATE_MS / 1000 * MFU * 8 / 3.2)
    assert rows == [[8, 8, 1, pytest.approx(MFU)], [8, 16, 1, pytest.approx(late)]]


def test_findings(fleet: Path) -> None:
    rows = {row[0]: row[1:] for row in answers(fleet, "Which finding")}
    runs, hours, change = rows["data_stall"]
    assert (runs, hours) == (1, pytest.approx((STEPS - 1) * (LATE_MS + 5) / 1000 / 3600, rel=0.1))
    assert change


def test_the_slowest_hosts(fleet: Path) -> None:
    assert answers(fleet, "The slowest hosts") == [["node7", 4, 25.0], ["node0", 4, 0.0]]


def test_one_rank_on_one_day(fleet: Path) -> None:
    rows = answers(fleet, "One rank")
    assert rows == [[datetime(2024, 1, 29, 11, 30), "node7", 90, 10]] * len(PLANS)


def test_phases(fleet: Path) -> None:
    assert sorted(row[1:] for row in answers(fleet, "Where the iterations")) == [
        [300, 590, 20, 5],
        [300, 590, 20, 5 + LATE_MS],
    ]


def test_ends(fleet: Path) -> None:
    assert answers(fleet, "How runs ended") == [["completed", "llama", "NVIDIA H200", 2, 2 * STEPS]]


def test_calls(fleet: Path) -> None:
    rows = {row[0]: row[1:] for row in answers(fleet, "The slowest calls")}
    calls = [each for each in rpc_sessions.llama_calls() if each.method == "Embedding"]
    assert rows["Embedding"] == [len(calls), pytest.approx(calls[0].total_ns / 1e6), 0]


def test_operations(fleet: Path) -> None:
    rows = answers(fleet, "What a queue moves")
    assert [row[:2] for row in rows] == [["get", "train"], ["put", "train"]]
    assert all(row[3] > 0 for row in rows)


def test_operators(fleet: Path) -> None:
    rows = answers(fleet, "The costliest operators")
    assert rows[0] == ["model.layers.0.self_attn.q_proj", "backward", "aten::mm", 8, 80]
    assert [row[-1] for row in rows] == sorted((row[-1] for row in rows), reverse=True)
