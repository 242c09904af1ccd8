"""Run files' tables: what is in them is what the reader yields, and they are never believed when in doubt."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flagscale_perf.analysis.lake import all_tables
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import dump, encode
from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.spine.records import TYPES, Record, RunEnd, RunHeader, kind_of
from flagscale_perf.store import cache, seal
from flagscale_perf.store.cache import Place
from flagscale_perf.store.run_file import RunFile
from flagscale_perf.store.seal import Sealed
from flagscale_perf.store.tables import RUN, TIME
from flagscale_perf.trace.records import CallRecord
from tests import every_instrument
from tests.fakes import make_header, make_step
from tests.strategies import any_record

pq = pytest.importorskip("pyarrow.parquet")
NAME = "perf_records_20240129_103000.jsonl"
TABLES = all_tables()


def sealed(path: Path, place: Place | None = None) -> Sealed:
    return seal.seal(path, TABLES, place)


def rows_in(made: Sealed, kind: str) -> list[dict[str, Any]]:
    return seal.Columns(made.files[kind], TABLES.schemas[kind]).table().to_pylist()


def steps_in(made: Sealed) -> list[int]:
    return [row["iteration"] for row in rows_in(made, "step")]


def write(path: Path, *records: Record, header: RunHeader | None = None) -> Path:
    path.write_bytes(b"".join(map(encode, [header or make_header(), *records])))
    return path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "run").mkdir()
    return write(tmp_path / "run" / NAME, *map(make_step, range(1, 6)))


def expected(record: Record, names: dict[tuple[int, int], str]) -> list[dict[str, Any]]:
    """The rows of a record by the fields that are columns, words and texts for their numbers."""
    make = TABLES.rows.get(type(record))
    if make is not None:
        return [row._asdict() for row in make(record)]
    own = dict(record._asdict() if hasattr(record, "_asdict") else vars(record))
    for name, words in TABLES.words.get(type(record), {}).items():
        own[name] = words.get(own[name], str(own[name]))
    for name in TABLES.texts.get(type(record), ()):
        number = own[name]
        own[name] = names.get((record.process, number), f"name {number}") if number else None
    return [own]


def shown(value: Any, is_nested: bool = False) -> Any:
    """A value as a column has it; `is_nested`: of a field that may hold dictionaries."""
    if isinstance(value, dict) or (isinstance(value, list) and is_nested):
        return dump(value)
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    return [shown(each) for each in value] if isinstance(value, list | tuple) else value


def check(path: Path, made: Sealed) -> None:
    """The tables have what the reader yields, in its order, and nothing else."""
    run = RunFile(path)
    names: dict[tuple[int, int], str] = {}
    wanted: dict[str, list[dict[str, Any]]] = {}
    for record in run:
        if isinstance(record, NameRecord):
            names[record.process, record.number] = record.text
    for record in run:
        for row in expected(record, names):
            if isinstance(record, RunHeader):
                row = {name: value for name, value in row.items() if name not in RUN}
            kind = kind_of(type(record))
            nested = {name for name, of in type(record).__annotations__.items() if "dict[" in str(of)}
            own = {
                f"{kind}_{name}" if name in RUN else name: shown(row[name], name in nested) for name in row
            }
            if TYPES[type(record)].start is not None:
                start = getattr(record, TYPES[type(record)].start)
                if not TYPES[type(record)].start.endswith("_wall_ns"):
                    start += run.header.start_wall_ns - run.header.start_mono_ns
                own[TIME] = start if -(2**63) < start < 2**63 else None
            wanted.setdefault(kind, []).append(own)
    assert made.rows == {kind: len(rows) for kind, rows in wanted.items()}
    assert set(made.files) == set(wanted)
    for kind, rows in wanted.items():
        found = rows_in(made, kind)
        assert [{name: row[name] for name in rows[0]} for row in found] == rows
        assert {row["session_id"] for row in found} == {run.header.session_id}
        assert {row["run_id"] for row in found} == {made.run_id}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.lists(any_record, max_size=3).map(lambda records: b"".join(map(encode, records))), max_size=4
    ),
    st.binary(max_size=40),
    st.booleans(),
)
def test_any_records_and_damage_are_the_rows_that_the_reader_yields(
    tmp_path: Path, lines: list[bytes], damage: bytes, has_end: bool
) -> None:
    path = tmp_path / NAME
    path.write_bytes(
        encode(make_header()) + (damage + b"\n").join(lines) + (b"" if has_end else b'{"kind":"st')
    )
    if any(type(each) is RunHeader for each in RunFile(path)) and b'"header"' in b"".join(lines):
        return  # its reading ends there: see below
    check(path, sealed(path, Place(tmp_path / "out", (), 0o700)))


@pytest.mark.parametrize("name", every_instrument.WRITERS)
def test_every_instrument(tmp_path: Path, name: str) -> None:
    path = every_instrument.write(name, tmp_path, "completed")
    check(path, sealed(path))


def test_nothing_is_read_behind_a_second_header(run: Path) -> None:
    with run.open("ab") as file:
        file.write(encode(make_header()) + encode(make_step(6)))
    assert steps_in(sealed(run)) == [1, 2, 3, 4, 5]


def test_made_once_and_again_after_any_change(run: Path) -> None:
    assert [sealed(run).is_new, sealed(run).is_new] == [True, False]
    content, times = run.read_bytes(), os.stat(run)
    run.write_bytes(content.replace(b'"iteration":5', b'"iteration":7'))
    os.utime(run, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (sealed(run).is_new, steps_in(sealed(run))) == (True, [1, 2, 3, 4, 7])
    run.write_bytes(content[: content.rindex(b'{"kind"')])
    assert (sealed(run).is_new, steps_in(sealed(run))) == (True, [1, 2, 3, 4])


def test_a_run_that_goes_on_has_its_new_rows_and_no_half_line(run: Path) -> None:
    sealed(run)
    with run.open("ab") as file:
        file.write(encode(make_step(6)) + encode(make_step(7))[:20])
    assert steps_in(sealed(run)) == [1, 2, 3, 4, 5, 6]
    with run.open("ab") as file:
        file.write(encode(make_step(7))[20:])
    assert steps_in(sealed(run)) == [1, 2, 3, 4, 5, 6, 7]


def test_another_run_of_the_same_name_leaves_nothing_behind(run: Path) -> None:
    before = sealed(run)
    write(run, RunEnd("completed", 2, 0, 0), header=replace(make_header(), host="node9"))
    after = sealed(run)
    assert not any(path.exists() for paths in before.files.values() for path in paths)
    assert sorted(run.parent.glob("cache/kind=*/*/*")) == sorted(chain(*after.files.values()))


@pytest.mark.parametrize("kind", ["step", "header"])
@pytest.mark.parametrize("change", ["other rows", "no table", "gone", "a link", "cut"])
def test_a_table_that_is_not_the_one_that_was_written_is_made_again(
    run: Path, tmp_path: Path, kind: str, change: str
) -> None:
    (path,) = sealed(run).files[kind]
    own = path.read_bytes()
    path.unlink()
    match change:
        case "other rows":
            other = write(tmp_path / "other.jsonl", make_step(99))
            shutil.copy(sealed(other, Place(tmp_path / "other", (), 0o700)).files[kind][0], path)
        case "no table":
            path.write_bytes(b"x" * len(own))
        case "a link":
            (tmp_path / "elsewhere").write_bytes(own)
            path.symlink_to(tmp_path / "elsewhere")
        case "cut":
            path.write_bytes(own[:-1])
    made = sealed(run)
    assert (made.is_new, steps_in(made)) == (True, [1, 2, 3, 4, 5])
    assert not path.is_symlink()


def test_small_tables_of_a_run_that_goes_on_become_large_ones(run: Path) -> None:
    """However often it is looked at, and with texts that are named in earlier ones."""
    most = 0
    for number in range(1, 60):
        calls = [of_zeros(CallRecord, process=1, number=each, function=each) for each in (1, number)]
        with run.open("ab") as file:
            file.write(b"".join(map(encode, [NameRecord(1, number, f"text {number}"), *calls])))
        made = sealed(run)
        check(run, made)
        most = max(most, *map(len, made.files.values()))
        assert sorted(run.parent.glob("cache/kind=*/*/*")) == sorted(chain(*made.files.values()))
    assert 1 < most <= 6


def of_zeros(record_type: Any, **fields: Any) -> Record:
    """A record of zeros but for these fields."""
    zeros = ("" if "str" in str(hint) else 0 for hint in record_type.__annotations__.values())
    return record_type(*zeros)._replace(**fields)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"part":[1,2,3,[]]}', b"[" * 9999])
def test_a_damaged_list_is_none(run: Path, content: bytes) -> None:
    sealed(run)
    (run.parent / "cache/parts/20240129_103000.json").write_bytes(content)
    assert (sealed(run).is_new, sealed(run).is_new) == (True, False)


def test_tables_of_another_version_are_made_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed(run)
    monkeypatch.setattr(seal, "code", lambda: "another")
    assert (sealed(run).is_new, sealed(run).is_new) == (True, False)


def test_a_list_that_names_a_file_elsewhere_is_not_believed(run: Path, tmp_path: Path) -> None:
    sealed(run)
    path = run.parent / "cache/parts/20240129_103000.json"
    listed = json.loads(path.read_bytes())
    (tmp_path / "secret.parquet").write_bytes(b"secret")
    found = (tmp_path / "secret.parquet").stat()
    below = "host=node0/../../../../secret"
    listed[2], listed[-1] = below, [["", 5, [["step", 5, [found.st_size, found.st_mtime_ns]]]]]
    path.write_text(json.dumps(listed))
    assert steps_in(sealed(run)) == [1, 2, 3, 4, 5]


def test_where_nothing_can_be_written_the_users_cache_has_them(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, run.parent)
    made = sealed(run)
    assert made.place.path.is_relative_to(run.parents[1] / "home")
    assert (sealed(run).is_new, steps_in(made)) == (False, [1, 2, 3, 4, 5])


def refuse(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """As a file system that is read-only does; tests may run as root, whom no mode stops."""
    make = cache.new_file

    def new_file(place: Place, name: str) -> Any:
        if place.path.is_relative_to(directory):
            raise OSError(30, os.strerror(30))
        return make(place, name)

    monkeypatch.setattr(seal, "new_file", new_file)


def test_a_full_disk_leaves_nothing_half_written(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal, "parquet_writer", full)
    with pytest.raises(OSError, match="No space left"):
        sealed(run)
    assert [path for path in run.parents[1].rglob("*") if path.is_file()] == [run]
    monkeypatch.undo()
    assert steps_in(sealed(run)) == [1, 2, 3, 4, 5]


def full(*_: object) -> None:
    raise OSError(28, os.strerror(28))


def test_two_at_once_are_both_right(run: Path) -> None:
    start = multiprocessing.get_context("fork")
    several = [start.Process(target=_seal_often, args=(run,)) for _ in range(2)]
    for each in several:
        each.start()
    for each in several:
        each.join(60)
    assert [each.exitcode for each in several] == [0, 0]
    assert steps_in(sealed(run)) == [1, 2, 3, 4, 5]
    assert not list(run.parent.rglob("*.tmp"))


def _seal_often(run: Path) -> None:
    for _ in range(10):
        (run.parent / "cache/parts/20240129_103000.json").unlink(missing_ok=True)
        assert sealed(run).rows["step"] == 5


def test_what_is_no_run_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_text("hello\n")
    with pytest.raises(PerfError, match="not a run file"):
        sealed(path)
    assert not (tmp_path / "cache").exists()


def test_a_link_in_the_place_of_the_cache_is_not_followed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (run.parent / "cache").symlink_to(tmp_path / "elsewhere")
    assert sealed(run).place.path.is_relative_to(tmp_path / "home")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_strange_host_is_one_directory(run: Path) -> None:
    write(run, make_step(1), header=replace(make_header(), host="../a b/ü=%"))
    (path,) = sealed(run).files["step"]
    assert path.parent.name == "host=..%2Fa%20b%2F%C3%BC%3D%25"


@pytest.mark.parametrize(
    "names", [("a-b", "a"), ("a-12345678", "a"), ("x" * 230 + "a", "x" * 230 + "b"), ("-" * 91, "-" * 90)]
)
def test_files_of_names_alike_keep_their_tables(run: Path, names: tuple[str, str]) -> None:
    paths = [run.with_name(f"perf_records_{name}.jsonl") for name in names]
    for path, count in zip(paths, (2, 3), strict=True):
        write(path, *map(make_step, range(count)), header=make_header(host=f"node{count}"))
    for path in paths:
        sealed(path)
    assert [(sealed(path).is_new, len(steps_in(sealed(path)))) for path in paths] == [(False, 2), (False, 3)]


def test_what_killed_writers_have_left_goes_after_a_day(run: Path) -> None:
    made = sealed(run)
    old, young = (made.files["step"][0].with_name(f".{name}.tmp") for name in ("old", "young"))
    state = made.place.path / ".state.tmp"
    for path in (old, young, state):
        path.touch()
    for path in (old, state):
        os.utime(path, (0, 0))
    assert not sealed(run).is_new and old.exists()
    write(run, make_step(9))
    assert steps_in(sealed(run)) == [9]
    assert (old.exists(), young.exists(), state.exists()) == (False, True, False)
