"""A report from a state that was kept is the report of the files alone, to the byte; where there is none of
these very files, they are read anew.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flagscale_perf.analysis.instrument import load
from flagscale_perf.analysis.job import open_session
from flagscale_perf.report import html, text
from flagscale_perf.report import json as as_json
from flagscale_perf.spine import files
from flagscale_perf.store import cache, kept, part, state
from tests.every_instrument import JOBS, WRITERS, write_job

TESTS = Path(__file__).parents[2]
RECORDED = [
    *sorted((TESTS / "earlier_files").glob("perf_records_*.jsonl")),
    TESTS / "golden" / "perf_records.jsonl",
]
FORMS = (text, as_json)
KEPT = ("training", "rpc", "trace")  # of the others all records are in memory anyway
RESTORED: list[str] = []


@pytest.fixture(autouse=True)
def everything_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """However short, and in chunks of some lines."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(kept, "MIN_BYTES", 0)
    monkeypatch.setattr(kept, "_BYTES_A_VALUE", 1e-6)
    monkeypatch.setattr("flagscale_perf.spine.jsonl.CHUNK_BYTES", 2048)
    restore = state.made

    def counted(text: str, root: list[object]) -> None:
        restore(text, root)
        RESTORED.append(type(root[0]).__name__)

    monkeypatch.setattr(state, "made", counted)
    RESTORED.clear()
    yield


def report(path: Path, is_kept: bool = True, forms: Sequence[Any] = FORMS) -> list[str]:
    """In these forms."""
    with contextlib.nullcontext() if is_kept else cache.switched_off():
        session = open_session(path)
        found = load(session.instrument).report(session)
        return [form.render(found) for form in forms]


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
    forms = (*FORMS, html)
    alone = report(path, is_kept=False, forms=forms)
    assert not (path.parent / "cache").exists()
    assert [report(path, forms=forms) for _ in range(3)] == [alone] * 3
    assert bool(RESTORED) == (open_session(path).instrument in KEPT)


@pytest.mark.parametrize("shares", [(0.3,), (0.1, 0.5, 0.9), (0.99,)])
def test_a_file_that_has_grown_since_is_read_on(path: Path, shares: tuple[float, ...]) -> None:
    content, alone = path.read_bytes(), report(path, is_kept=False)
    for share in shares:
        path.write_bytes(content[: max(int(share * len(content)), content.index(b"\n") + 1)])
        report(path)
    path.write_bytes(content)
    assert report(path) == alone


def test_a_session_of_several_files_is_read_on_where_only_the_last_has_grown(tmp_path: Path) -> None:
    for name in JOBS:
        (directory := tmp_path / name).mkdir()
        first, last = write_job(name, directory, ("completed", "completed"))
        (directory / "made").rename(tmp_path / f"made_{name}")
        RESTORED.clear()
        alone, content = report(directory, is_kept=False), last.read_bytes()
        for path, share in ((last, 0.7), (last, 1), (first, 0.7), (first, 1)):
            whole = path.read_bytes()
            path.write_bytes(whole[: whole.rfind(b"\n", 0, int(share * len(whole))) + 1])
            report(directory)
            path.write_bytes(whole)
            assert report(directory) == alone == report(directory)
        assert last.read_bytes() == content


def test_a_session_of_which_a_file_is_just_being_removed_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job("trace", tmp_path, ("completed", "completed"))

    def gone(path: Path) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    alone = report(tmp_path, is_kept=False)
    monkeypatch.setattr(part.Part, "whole", gone)
    assert (report(tmp_path), report(tmp_path), RESTORED) == (alone, alone, [])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.floats(0.01, 1), min_size=1, max_size=4), name=st.sampled_from(KEPT))
def test_a_live_file_may_be_looked_at_at_any_time(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[float], name: str
) -> None:
    path = WRITERS[name](tmp_path_factory.mktemp("run"))
    content, alone = path.read_bytes(), report(path, is_kept=False)
    path.write_bytes(content[: content.index(b"\n") + 1])
    with path.open("ab") as file:
        files.lock(file.fileno())
        for cut in sorted(cuts):
            file.write(content[file.tell() : max(file.tell(), int(cut * len(content)))])
            file.flush()
            report(path)
        file.write(content[file.tell() :])
    assert report(path) == alone


def damage(kept_file: Path) -> dict[str, bytes]:
    content = kept_file.read_bytes()
    return {
        "cut": content[: len(content) // 2],
        "empty": b"",
        "edited": content.replace(b"RunFold", b"RunTold"),
        "one bit": content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
        "another's": os.urandom(32) + content[32:],
        "text": b"[]\n",
        "twice": content * 2,
    }


def test_what_is_damaged_or_of_another_is_not_believed(tmp_path: Path) -> None:
    path = WRITERS["training"](tmp_path)
    alone, _ = report(path, is_kept=False), report(path)
    (found,) = (tmp_path / "cache").iterdir()
    for what, content in damage(found).items():
        found.write_bytes(content)
        RESTORED.clear()
        assert (report(path), RESTORED) == (alone, []), what
    (tmp_path / "home" / "flagscale_perf" / "key").unlink()  # as if another user had kept it
    assert (report(path), RESTORED) == (alone, [])
    found.unlink()
    found.symlink_to(tmp_path / "nowhere")
    assert (report(path), RESTORED) == (alone, [])
    assert not (tmp_path / "nowhere").exists()


def test_another_version_reads_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = WRITERS["training"](tmp_path)
    alone, _ = report(path, is_kept=False), report(path)
    monkeypatch.setattr(cache, "code", lambda: "another")
    assert (report(path), RESTORED) == (alone, [])


def test_a_state_that_does_not_fit_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = WRITERS["training"](tmp_path)
    alone, _ = report(path, is_kept=False), report(path)
    whole = state.made

    def broken(content: str, root: list[object]) -> None:
        whole(content, root)
        if "not yet" not in tried:
            tried.append("not yet")
            raise ValueError("does not fit")

    tried: list[str] = []
    monkeypatch.setattr(state, "made", broken)
    assert report(path) == alone and tried


def test_a_file_that_was_changed_is_read_anew(tmp_path: Path) -> None:
    path = WRITERS["training"](tmp_path)
    report(path)
    content, before = path.read_bytes(), path.stat()
    at = content.index(b'"iteration_ns":', len(content) // 2) + len(b'"iteration_ns":')
    path.write_bytes(
        content[:at] + b"9" + content[at + 1 :]
    )  # one digit, in the same place and of the same size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert report(path) == report(path, is_kept=False)
    assert RESTORED == []
    (tmp_path / "other").mkdir()
    os.replace(WRITERS["rpc"](tmp_path / "other"), path)  # another run in its place
    assert report(path) == report(path, is_kept=False)


def test_where_nothing_can_be_kept_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = WRITERS["training"](tmp_path)
    alone = report(path, is_kept=False)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    assert report(path) == report(path) == alone
    assert RESTORED == [] and not any(each.is_file() for each in (tmp_path / "home").rglob("*"))


def test_a_short_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = WRITERS["training"](tmp_path)
    monkeypatch.setattr(kept, "MIN_BYTES", 64 << 20)
    monkeypatch.setattr(cache, "code", pytest.fail)
    report(path)
    assert not (tmp_path / "cache").exists() and not (tmp_path / "home").exists()
