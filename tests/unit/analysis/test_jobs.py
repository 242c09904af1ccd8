"""The jobs below a directory: what belongs to one is in its row, and everything else has one of its own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import sessions_below
from flagscale_perf.analysis.jobs import as_jobs
from flagscale_perf.analysis.whole import Stretch
from tests.every_instrument import HOUR_NS, write

MADE = "made"


def jobs_in(directory: Path) -> dict[str, list[str]]:
    """Of each job the session that leads it, by its place, and the instruments beside it."""
    found = as_jobs(sessions_below(directory))
    return {
        str(one.path.relative_to(directory).parent): found.beside(one)
        for one in found.sessions
        if one.path.parent.name != MADE
    }


def put(name: str, directory: Path, hours: int = 0, number: int = 0) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    start = {"start_wall_ns": (100 + hours) * HOUR_NS, "session_id": f"2024012{hours}_10300{number}"}
    write(name, directory, "completed", pid=7_000 + number, **start)


def test_what_was_recorded_beside_a_training_is_of_its_job(tmp_path: Path) -> None:
    put("training", tmp_path / "a")
    put("profile", tmp_path / "a", number=1)
    put("rpc", tmp_path / "a/calls", number=2)
    put("training", tmp_path / "b")
    put("trace", tmp_path / "c")
    put("profile", tmp_path / "c", number=1)
    assert jobs_in(tmp_path) == {"a": ["profile", "rpc"], "b": [], "c": ["profile"]}


def test_another_time_is_another_job(tmp_path: Path) -> None:
    put("training", tmp_path / "a")
    put("profile", tmp_path / "a/later", hours=3)
    assert jobs_in(tmp_path) == {"a": [], "a/later": []}


def test_sub_directories_of_one_training_are_one_job(tmp_path: Path) -> None:
    for name in ("one", "two"):
        put("training", tmp_path / name / "training")
        put("rpc", tmp_path / name / "calls", number=1)
        put("trace", tmp_path / name / "queue", number=2)
    assert jobs_in(tmp_path) == {"one/training": ["rpc", "trace"], "two/training": ["rpc", "trace"]}


def test_experiments_are_of_no_job(tmp_path: Path) -> None:
    put("training", tmp_path / "a")
    put("bench", tmp_path / "a/bench", number=1)
    assert jobs_in(tmp_path) == {"a": [], "a/bench": []}


def test_of_two_trainings_at_once_nothing_says_whose_a_profile_is(tmp_path: Path) -> None:
    put("training", tmp_path / "a")
    put("training", tmp_path / "a/again", number=1)
    put("profile", tmp_path / "a/profiled", number=2)
    assert jobs_in(tmp_path) == {"a": [], "a/again": [], "a/profiled": []}


def test_jobs_one_after_another_in_one_directory_are_not_compared_with_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        for name, second in (("training", 0), ("profile", 1)):
            start_ns = (100 + 10 * number) * HOUR_NS
            session = f"202401{10 + number}_10300{second}"
            write(name, tmp_path, "completed", pid=7_000 + number, start_wall_ns=start_ns, session_id=session)
    compared, meets = Counter[str](), Stretch.meets
    monkeypatch.setattr(Stretch, "meets", lambda one, other: compared.update(["pair"]) or meets(one, other))
    found = as_jobs(sessions_below(tmp_path))
    own = [one for one in found.sessions if one.path.parent == tmp_path]
    assert [found.beside(one) for one in own] == [["profile"]] * 20
    assert compared["pair"] <= 2 * 40  # of 40 * 40
