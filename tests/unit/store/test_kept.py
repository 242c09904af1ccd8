"""A report from a state that was kept is the report of the files alone, to the byte; from anything else it is that,
too.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flagscale_perf.analysis.instrument import load
from flagscale_perf.analysis.job import open_session
from flagscale_perf.report import html, text
from flagscale_perf.report import json as as_json
from flagscale_perf.store import cache, kept, state
from tests.every_instrument import JOBS, WRITERS, write_job

TESTS = Path(__file__).parents[2]
RECORDED = [
    *sorted((TESTS / "earlier_files").glob("perf_records_*.jsonl")),
    TESTS / "golden" / "perf_records.jsonl",
]
FORMS = (text, html, as_json)
KEPT = ("training", "rpc", "trace")  # of the others all records are in memory anyway
RESTORED: list[str] = []


@pytest.fixture(autouse=True)
def everything_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """However short, and in chunks of some lines."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(kept, "MIN_BYTES", 0)
    monkeypatch.setattr(kept, "_BYTES_A_VALUE", 1e-6)
    monkeypatch.setattr("flagscale_perf.spine.jsonl.CHUNK_BYTES", 2048)
    restore = state.restore

    def counted(text: str, root: list[object]) -> None:
        restore(text, root)
        RESTORED.append(type(root[0]).__name__)

    monkeypatch.setattr(state, "restore", counted)
    RESTORED.clear()
    yield


def report(path: Path, is_kept: bool = True) -> list[str]:
    """In every form."""
    with contextlib.nullcontext() if is_kept else cache.switched_off():
        session = open_session(path)
        found = load(session.instrument).report(session)
        return [form.render(found) for form in FORMS]


def written(name: str) -> Callable[[Path], Path]:
    return lambda directory: WRITERS[name](directory)


def copied(path: Path) -> Callable[[Path], Path]:
    def write(directory: Path) -> Path:
        copy = directory / path.name.replace("records.", "records_20240129_103000.")
        copy.write_bytes(path.read_bytes())
        return copy

    return write


RUNS = {name: written(name) for name in WRITERS} | {path.stem: copied(path) for path in RECORDED}


@pytest.fixture(params=RUNS, ids=RUNS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (directory := tmp_path / "run").mkdir()
    return RUNS[request.param](directory)


def test_the_second_and_the_third_report_is_the_first(path: Path) -> None:
    alone = report(path, is_kept=False)
    assert not (path.parent / "cache").exists()
    assert [report(path) for _ in range(3)] == [alone] * 3
    assert bool(RESTORED) == (open_session(path).instrument in KEPT)


@pytest.mark.parametrize("shares", [(0.3,), (0.1, 0.5, 0.9), (0.99,)])
def test_a_file_that_has_grown_since_is_read_on(path: Path, shares: tuple[float, ...]) -> None:
    content, alone = path.read_bytes(), report(path, is_kept=False)
    for share in shares:
        path.write_bytes(content[: max(int(share * len(content)), content.index(b"\n") + 1)])
        report(path)
    path.write_bytes(content)
    assert report(path) == alone
