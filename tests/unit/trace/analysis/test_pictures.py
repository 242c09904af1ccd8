"""The pictures of a trace: time and age as its records have them."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.blocks import HeatMap, Section, Series
from flagscale_perf.analysis.job import open_session
from flagscale_perf.trace.analysis.instrument import read_report
from flagscale_perf.trace.analysis.pictures import BINS, pictures
from tests.trace_runs import MS, Job, lines_of_call, pipeline


def _drawn(directory: Path, job: Job) -> dict[str, Section]:
    return {section.key: section for section in pictures(read_report(open_session(job.write(directory))))}


def test_producers_queue_and_consumers_share_an_axis(tmp_path: Path) -> None:
    series = _drawn(tmp_path, pipeline(steps=10))["flow"].blocks[0]
    assert isinstance(series, Series)
    assert [(panel.title, [line.label for line in panel.lines]) for panel in series.panels] == [
        ("Samples put", ["rollout"]),
        ("Samples that wait for train", ["waiting"]),
        ("Samples got", ["train"]),
    ]
    width_s = (series.span or (0, 0))[1] / BINS
    for place in (0, 2):
        assert round(sum(value or 0 for value in series.panels[place].lines[0].y) * width_s) == 640
    waiting = series.panels[1].lines[0].y
    assert {*waiting} == {0.0, 64.0}


def test_a_processes_time_is_what_its_calls_say(tmp_path: Path) -> None:
    heat = _drawn(tmp_path, pipeline(steps=10))["processes-time"].blocks[0]
    assert isinstance(heat, HeatMap)
    assert (heat.rows, [layer.label for layer in heat.layers]) == (
        ["Rollout 101", "Train 102"],
        ["compute", "get", "put"],
    )
    width_ns = (heat.edges[1] - heat.edges[0]) * 1e9
    times = {
        layer.label: [round(sum(cell or 0 for cell in row) * width_ns / MS) for row in layer.values]
        for layer in heat.layers
    }
    assert times == {"compute": [240, 940], "get": [0, 60], "put": [40, 0]}


def test_ages_are_drawn_where_samples_are_old(tmp_path: Path) -> None:
    job = Job()
    rollout, train = job.process("Rollout", 1), job.process("Train", 2)
    for step in range(8):
        job.put(rollout, step * 100 * MS + MS, range(8 * step, 8 * step + 8))
    for step in range(3, 11):
        job.get(train, step * 100 * MS + 50 * MS, range(8 * (step - 3), 8 * (step - 3) + 8))
    age = _drawn(tmp_path, job)["age"].blocks[0]
    assert isinstance(age, Series)
    assert list(age.panels[0].lines[0].y) == [0, 1, 2, 3, 3, 3, 3, 3]


def test_of_text_nothing_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("\n".join(lines_of_call()))
    assert pictures(read_report(open_session(tmp_path / "a.log"))) == []
