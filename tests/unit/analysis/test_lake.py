"""Runs as tables: what a query of many runs says, keeps and leaves out."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf import open_run
from flagscale_perf.analysis import lake
from flagscale_perf.analysis.lake import ask, seal_all, write_tables
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.store import cache
from flagscale_perf.training.records import StepRecord
from tests import every_instrument
from tests.fakes import make_header, make_step
from tests.run_files import left_behind

pytest.importorskip("duckdb")
pq = pytest.importorskip("pyarrow.parquet")
NAME = "perf_records_20240129_103000.jsonl"
COUNT = "select count(*) from steps"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """One run that ended, and one that was killed."""
    for number, name in enumerate(("ended", "killed")):
        path = tmp_path / "fleet" / name / NAME
        path.parent.mkdir(parents=True)
        end = [RunEnd("completed", 1_706_524_300 * 10**9, 5, 0)] if name == "ended" else []
        steps = [make_step(each) for each in range(1, 6 + number)]
        path.write_bytes(b"".join(map(encode, [make_header(perf_log_interval=number + 1), *steps, *end])))
    left_behind(tmp_path / "fleet/killed" / NAME)
    return tmp_path / "fleet"


def tables_in(fleet: Path) -> list[str]:
    return sorted(path.parts[-3] for path in fleet.rglob("*.parquet"))


def test_a_directory_and_a_run(fleet: Path) -> None:
    assert ask(fleet, COUNT, pytest.fail).rows == [[11]]
    assert ask(fleet / "killed", COUNT, pytest.fail).rows == [[6]]
    assert ask(fleet / "killed" / NAME, COUNT, pytest.fail).rows == [[6]]


def test_what_belongs_to_one_job_is_known(fleet: Path, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    every_instrument.write("training", tmp_path / "job", "completed")
    every_instrument.write("profile", tmp_path / "job", "completed", session_id="20240129_103001")
    shutil.rmtree(tmp_path / "job/made")
    said = list[str]()
    asked = "select count(distinct job_id), count(*), list(distinct lead) from jobs"
    assert ask(tmp_path / "job", asked, said.append).rows == [[1, 2, ["training"]]]
    assert ask(fleet, asked, said.append).rows == [[2, 2, ["training"]]]
    steps = "select count(*) from steps join jobs using (run_id) where lead = 'training'"
    assert ask(tmp_path / "job", steps, said.append).rows == [[40]]
    assert ask(fleet, "select count(*) from steps", said.append).rows == [[11]] and said == []


def test_what_reports_say_is_kept_and_made_again_with_new_records(fleet: Path) -> None:
    sql = "select iterations, end_reason from runs order by 1"
    assert "kind=run" not in tables_in(fleet)
    for _ in range(2):
        assert ask(fleet, sql, pytest.fail).rows == [[5, "completed"], [6, "killed"]]
    assert tables_in(fleet).count("kind=run") == 2
    with (fleet / "killed" / NAME).open("ab") as file:
        file.write(encode(make_step(7)))
    assert [row[0] for row in ask(fleet, sql, pytest.fail).rows] == [5, 7]
    assert tables_in(fleet).count("kind=run") <= 2  # a file that has just grown may yet go on


def test_an_end_that_may_yet_come_is_not_kept(fleet: Path) -> None:
    sql = "select end_reason from runs order by 1"
    with every_instrument.being_written(fleet / "killed" / NAME):
        assert ask(fleet, sql, pytest.fail).rows == [["completed"], ["running"]]
    assert ask(fleet, sql, pytest.fail).rows == [["completed"], ["killed"]]


def test_a_copy_of_a_run_is_counted_once(fleet: Path) -> None:
    shutil.copytree(fleet / "ended", fleet / "ended_again")
    said: list[str] = []
    assert ask(fleet, COUNT, said.append).rows == [[11]]
    assert len(said) == 1
    assert "ended_again" in said[0]
    assert "the same run as" in said[0]


def test_what_is_no_run_is_left_out_and_said_or_refused_alone(fleet: Path) -> None:
    (fleet / "strange").mkdir()
    (fleet / "strange" / NAME).write_text("hello\n")
    said: list[str] = []
    assert ask(fleet, COUNT, said.append).rows == [[11]]
    assert ["left out" in line for line in said] == [True]
    with pytest.raises(PerfError, match="not a run file"):
        ask(fleet / "strange", COUNT, pytest.fail)
    with pytest.raises(PerfError, match="does not exist"):
        ask(fleet / "nothing", COUNT, pytest.fail)


def test_more_runs_than_one_machine_should_ask_are_refused_before_any_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "many").mkdir()
    paths = [tmp_path / f"many/perf_records_{number}.jsonl" for number in range(lake.MAX_RUNS + 1)]
    monkeypatch.setattr("flagscale_perf.store.runs._files", lambda *_: iter(paths))
    for look in (
        lambda: ask(tmp_path / "many", COUNT, pytest.fail),
        lambda: seal_all(tmp_path, pytest.fail, print),
    ):
        with pytest.raises(
            PerfError, match="has 100,001 run files in it and below; at most 100,000 are asked"
        ):
            look()


def test_nothing_is_kept_where_it_is_not_to_be(fleet: Path, home: Path) -> None:
    with cache.switched_off():
        assert ask(fleet, "select count(*) from runs", pytest.fail).rows == [[2]]
        assert ask(fleet, COUNT, pytest.fail).rows == [[11]]
    assert (tables_in(fleet), home.exists()) == ([], False)


def test_what_cannot_be_kept_is_made_for_this_once(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flagscale_perf.store.seal.places", lambda path: iter(()))
    said: list[str] = []
    assert ask(fleet, COUNT, said.append).rows == [[11]]
    assert len(said) == 2
    assert "they are made for this once" in said[0]


def test_tables_that_others_replace_meanwhile_are_looked_for_again(
    fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, calls = lake.Lake, []

    def replaced(*args: Any) -> Any:
        calls.append(args)
        if len(calls) < 3:
            next((fleet / "ended/cache/kind=step").rglob("*.parquet")).unlink()
        return opened(*args)

    monkeypatch.setattr(lake, "Lake", replaced)
    assert ask(fleet, COUNT, pytest.fail).rows == [[11]]
    assert len(calls) == 3


def test_what_a_report_says_and_cannot_be_written_is_said(
    fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lake, "add_tables", full)
    said: list[str] = []
    made = seal_all(fleet, said.append, pytest.fail)
    assert len(said) == len(made) > 0
    assert all("left out of runs and findings: [Errno 28] No space left on device" in each for each in said)


def test_sealing_all_is_done_once(fleet: Path) -> None:
    assert [each.is_new for each in seal_all(fleet, pytest.fail, pytest.fail)] == [True, True]
    before = {path: path.stat().st_mtime_ns for path in fleet.rglob("*.parquet")}
    assert [each.is_new for each in seal_all(fleet, pytest.fail, pytest.fail)] == [False, False]
    assert before == {path: path.stat().st_mtime_ns for path in fleet.rglob("*.parquet")}
    assert tables_in(fleet).count("kind=run") == 2


def test_a_directory_of_tables(fleet: Path, tmp_path: Path) -> None:
    for name in ("ended", "killed"):
        write_tables(open_run(fleet / name), tmp_path / "out", pytest.fail)
    assert tables_in(fleet) == []
    steps = [pq.ParquetFile(path).read() for path in (tmp_path / "out/kind=step").rglob("*.parquet")]
    assert sorted(map(len, steps)) == [5, 6]
    assert len(list((tmp_path / "out/kind=run").rglob("*.parquet"))) == 2
    (tmp_path / "file").touch()
    with pytest.raises(PerfError, match="cannot be written"):
        write_tables(open_run(fleet / "ended"), tmp_path / "file", pytest.fail)


@pytest.mark.parametrize("name", every_instrument.WRITERS)
def test_every_instrument_has_its_tables_in_python(tmp_path: Path, name: str) -> None:
    path = every_instrument.write(name, tmp_path, "completed")
    run = open_run(path, instrument=name)
    for kind, record_type in {(type(each), type(each)) for each in run.records()}:
        assert run.to_arrow(kind).num_rows == sum(1 for _ in run.records(record_type))
    assert run.to_arrow("run")["end_reason"].to_pylist() == ["completed"]
    assert run.to_arrow("finding").num_rows == len(run.findings())


def test_a_kind_that_is_none(fleet: Path) -> None:
    run = open_run(fleet / "ended")
    assert run.to_arrow(StepRecord).num_rows == run.to_arrow("step").num_rows == 5
    with pytest.raises(PerfError, match="'steps' is no kind of records; did you mean step"):
        run.to_arrow("steps")
