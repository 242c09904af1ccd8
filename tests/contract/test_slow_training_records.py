"""The recorded slow trainings hold what was planted: real FlagScale runs, and the host's own work."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pyarrow.parquet as pq
import pytest

from benchmarks.slow_training.plants import ALWAYS, DEALT, EVEN, LONG, Planted, documents_of, drawn
from benchmarks.slow_training.record import HERE, table_of

RUNS = sorted(path.name for path in (HERE / "runs").iterdir())
MOST_BYTES = 20e6
MICROBATCHES = 2  # of the runs of documents


def squares(lengths: tuple[int, ...]) -> int:
    return sum(length**2 for length in lengths)


def plan_of(name: str) -> Planted:
    seed = int(name.rpartition("_s")[2])
    return next(plan for plan in drawn(seed) if plan.name == name)


def work_of(name: str, column: str) -> dict[tuple[int, int], int]:
    """By rank and iteration."""
    table = pq.read_table(HERE / "runs" / name / "steps.parquet")
    keys = zip(table["rank"].to_pylist(), table["iteration"].to_pylist(), strict=True)
    return dict(zip(keys, table[column].to_pylist(), strict=True))


def names(kind: str) -> list[str]:
    return [name for name in RUNS if plan_of(name).more_work == kind]


def test_all_fit_into_a_repository() -> None:
    files = [path for top in ("runs", "truth") for path in (HERE / top).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    assert {path.stem for path in (HERE / "truth").iterdir()} == set(RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_shows_the_planted_half_and_its_truth(name: str) -> None:
    plan = plan_of(name)
    table = pq.read_table(HERE / "runs" / name / "steps.parquet")
    missing = set(range(plan.ranks)) - set(table["rank"].to_pylist())
    assert not missing or (plan.busy and len(missing) == 1)  # one, beside the neighbour, was never heard
    assert max(table["iteration"].to_pylist()) <= ALWAYS
    assert min(table["own_ns"].to_pylist()) >= 0 <= min(table["wait_ns"].to_pylist())
    truth = json.loads((HERE / "truth" / f"{name}.json").read_text())
    planted = {(rank, delay.phase) for delay in plan.delays for rank in delay.ranks}
    said = {(rank, plant["phase"]) for plant in truth["plants"] for rank in plant["planted_on"]}
    assert said >= planted
    assert truth["healthy"] == (not said)
    assert sum(plant["cost_ms"] for plant in truth["plants"]) == pytest.approx(truth["cost_ms"], abs=0.1)


@pytest.mark.parametrize("name", RUNS)
def test_any_tool_gets_what_our_own_file_has(name: str) -> None:
    with gzip.open(HERE / "runs" / name / "perf.jsonl.gz", "rt") as file:
        made = table_of([json.loads(line) for line in file])
    assert made.equals(pq.read_table(HERE / "runs" / name / "steps.parquet"))


@pytest.mark.parametrize("name", [*names("long_documents"), *names("documents_and_slow")])
def test_a_long_document_is_in_the_record_of_its_rank(name: str) -> None:
    worker = plan_of(name).worker
    found = Counter((rank == worker, value) for (rank, _), value in work_of(name, "squared_lengths").items())
    assert set(found) == {
        (True, MICROBATCHES * squares(LONG)),
        (False, MICROBATCHES * squares(EVEN)),
    }
    assert set(work_of(name, "tokens").values()) == {MICROBATCHES * sum(LONG)}


@pytest.mark.parametrize("name", names("uneven_packing"))
def test_packing_is_recorded_as_it_was_dealt(name: str) -> None:
    plan = plan_of(name)
    for (rank, step), value in work_of(name, "squared_lengths").items():
        assert value == MICROBATCHES * squares(tuple(documents_of(plan, step, rank)))
    assert len(DEALT) == plan.ranks


@pytest.mark.parametrize("name", names("hot_expert"))
def test_a_hot_expert_is_in_the_record_of_its_rank(name: str) -> None:
    """Of 256 tokens of both ranks in two layers, seven of eight."""
    worker = plan_of(name).worker
    for (rank, _), value in work_of(name, "expert_tokens").items():
        assert value == (448 if rank == worker else 64)


@pytest.mark.parametrize("name", names("more_microbatches"))
def test_one_more_microbatch_is_in_the_record_of_its_rank(name: str) -> None:
    worker = plan_of(name).worker
    for (rank, _), value in work_of(name, "microbatches").items():
        assert value == (4 if rank == worker else 3)
