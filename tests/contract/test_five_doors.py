"""One job, one answer at every door: `report` in each format, `runs`, `watch`, `serve` and Python."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flagscale_perf import open_run
from flagscale_perf.analysis.instrument import load
from flagscale_perf.bench.records import BenchPoint
from flagscale_perf.cli import main
from flagscale_perf.cli.serve import _Source
from flagscale_perf.cli.watch import _View
from flagscale_perf.profile.records import RankRecord
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.spine.records import KILLED, RUNNING
from flagscale_perf.trace.records import OperationRecord
from flagscale_perf.training.records import StepRecord
from tests.every_instrument import HOUR_NS, WRITERS, being_written, beside, write, write_job


class Counted(NamedTuple):
    """What is counted of an instrument's session: records of a type, how many one machine has, and where its
    report has the number; `shown`: the screen's name for it.
    """

    kind: type
    count: int
    of_report: Callable[[dict[str, Any]], int]
    shown: str = ""


COUNTED = {
    "training": Counted(StepRecord, 40, lambda found: found["overview"]["iterations"], "iteration"),
    "rpc": Counted(CallRecord, 98, lambda found: found["overall"]["calls"], "calls"),
    "trace": Counted(
        OperationRecord,
        20,
        lambda found: sum(one["total_ns"]["count"] for one in found["operations"].values()),
        "operations",
    ),
    "profile": Counted(RankRecord, 2, lambda found: len(found["ranks"])),
    "bench": Counted(BenchPoint, 1, lambda found: len(found["experiments"]["bandwidth"]["points"])),
}
# A training's one file is of all machines, and one process directs experiments.
OF_MACHINES = sorted(set(WRITERS) - {"training", "bench"})
each = pytest.mark.parametrize("name", WRITERS)
each_job = pytest.mark.parametrize("name", OF_MACHINES)


class Doors:
    """What each door answers for a directory."""

    def __init__(self, name: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.name, self.directory, self._capsys = name, directory, capsys
        self.counted = COUNTED[name]

    def said(self, *words: object) -> str:
        assert main([*map(str, words)]) == 0
        return self._capsys.readouterr().out

    def check(self, state: str, count: int, sessions: int = 1) -> None:
        """All doors say this, the newest of so many sessions is the one."""
        report = _Source(self.directory, None, None).read()
        found = report.content.as_dict()
        assert (report.state, self.counted.of_report(found)) == (state, count), "serve"
        assert json.loads(self.said("report", self.directory, "--format", "json")) == _as_json(found), "JSON"
        assert state in self.said("report", self.directory, "--format", "html").lower(), "page"
        self._rows(count)
        self._in_python(found, count)
        self._listed(report, found, sessions)
        if load(self.name).offers("live"):
            self._watched(state, count)

    def _rows(self, count: int) -> None:
        _, *rows = csv.reader(io.StringIO(self.said("report", self.directory, "--format", "csv")))
        if self.name != "training":  # which has tables of its own
            assert len(open_run(self.directory, instrument=self.name).rows()) == len(rows), "rows"
        if self.name == "rpc":  # a row for each call
            assert len(rows) == count, "CSV"

    def _in_python(self, found: dict[str, Any], count: int) -> None:
        run = open_run(self.directory, instrument=self.name)
        report = run.report()
        content = report.as_dict() if self.name == "training" else report.content.as_dict()
        assert _as_json(content) == _as_json(found), "open_run"
        assert len(list(run.records(self.counted.kind))) == count, "records"
        if self.name == "training":
            assert len(run.steps()) == count, "table"
        elif hasattr(self.counted.kind, "_fields"):
            assert len(run.table(self.counted.kind)) == count, "table"

    def _listed(self, report: Any, found: dict[str, Any], sessions: int) -> None:
        listed = json.loads(self.said("runs", self.directory, "--format", "json"))
        rows = listed["runs"] if load(self.name).offers("runs") else listed["sessions"]
        assert len(rows) == sessions, "runs"
        row = rows[-1]
        assert row["findings"] == (report.findings and len(report.findings.found)), "runs"
        assert row.get("end_reason", row.get("end")) == report.state, "runs"
        if "figures" not in row:
            assert row["iterations"] == found["overview"]["iterations"], "runs"
            return
        tiles = {tile.label: getattr(tile.value, "value", None) for tile in report.tiles}
        assert {label: figure["value"] for label, figure in row["figures"].items()}.items() <= tiles.items()

    def _watched(self, state: str, count: int) -> None:
        view = _View(self.directory, None, may_wait=False)
        shown, _ = view.look()
        view.close()
        assert shown is not None and (shown.state, shown.content.as_dict()[self.counted.shown]) == (
            state,
            count,
        ), "watch"
        assert self.said("watch", self.directory, "--once").startswith(state.upper()), "watch"


def test_findings_of_a_job_are_as_many_in_a_list_as_in_its_report(tmp_path: Path, capsys: Any) -> None:
    """Of a training with a profile beside it, and of calls with a traced queue."""
    beside(tmp_path / "job", "training", 10, 80, (7,), pid=7)
    for place, name in enumerate(("profile", "rpc", "trace")):
        beside(tmp_path / "job", name, 20 + place, 60, (7,), pid=6)
    beside(tmp_path / "served", "rpc", 1000, 1080, (8,), pid=8)
    beside(tmp_path / "served", "trace", 1020, 1060, (8,), pid=8)
    counted = {}
    for place in ("job", "served"):
        assert main(["report", str(tmp_path / place), "--format", "json"]) == 0
        counted[place] = len(json.loads(capsys.readouterr().out)["job"]["findings"])
    for words in ([], ["--read-all"]):
        assert main(["runs", str(tmp_path), "--format", "json", *words]) == 0
        found = json.loads(capsys.readouterr().out)
        listed = {one["directory"]: one["findings"] for one in (*found["runs"], *found["sessions"])}
        assert listed == counted


def _as_json(content: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(content))
    return made


@pytest.fixture
def doors(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doors:
    (tmp_path / "run").mkdir()
    return Doors(name, tmp_path / "run", capsys)


@each
def test_one_machine(doors: Doors, name: str, tmp_path: Path) -> None:
    _moved(write(name, tmp_path, "completed"), doors.directory)
    doors.check("completed", COUNTED[name].count)


@each
def test_a_killed_machine(doors: Doors, name: str, tmp_path: Path) -> None:
    _moved(write(name, tmp_path, None), doors.directory)
    doors.check(KILLED, COUNTED[name].count)


@each
def test_one_that_runs(doors: Doors, name: str, tmp_path: Path) -> None:
    (path,) = _moved(write(name, tmp_path, None), doors.directory)
    with being_written(path):
        doors.check(RUNNING, COUNTED[name].count)


@each
def test_a_restart(doors: Doors, name: str, tmp_path: Path) -> None:
    first = write(name, tmp_path, "exit 1", session_id="20240129_103000", start_wall_ns=HOUR_NS)
    _moved(first, doors.directory)
    again = write(name, tmp_path, "completed", session_id="20240129_113000", start_wall_ns=2 * HOUR_NS)
    _moved(again, doors.directory)
    doors.check("completed", COUNTED[name].count, sessions=2)


@each_job
@pytest.mark.parametrize("below", ["", "node1"], ids=["beside", "below"])
def test_two_machines(doors: Doors, name: str, tmp_path: Path, below: str) -> None:
    first, second = write_job(name, tmp_path, ("completed", "completed"))
    _moved(first, doors.directory)
    _moved(second, doors.directory / below)
    doors.check("completed", 2 * COUNTED[name].count)


@each_job
def test_two_machines_of_which_one_was_killed(doors: Doors, name: str, tmp_path: Path) -> None:
    _moved(*write_job(name, tmp_path, (None, "completed")), doors.directory)
    doors.check(KILLED, 2 * COUNTED[name].count)


@each_job
def test_two_machines_that_began_anew(doors: Doors, name: str, tmp_path: Path) -> None:
    for hours_later in (0, 1):
        _moved(*write_job(name, tmp_path, ("completed", "exit 1"), hours_later), doors.directory)
    doors.check("exit 1", 2 * COUNTED[name].count, sessions=2)


def _moved(*paths: Path) -> list[Path]:
    """Files put into the directory, which is named last."""
    *files, directory = paths
    directory.mkdir(exist_ok=True)
    return [path.rename(directory / path.name) for path in files]
