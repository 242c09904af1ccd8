"""One report of a job: what leads looks as it does alone, and the others' share of it has its source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.analysis.instrument import load
from flagscale_perf.analysis.job import Job
from flagscale_perf.analysis.job_report import report_of
from flagscale_perf.report import csv, html, markdown, text
from flagscale_perf.report import json as as_json
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.units import duration
from flagscale_perf.trace.records import OperationRecord
from tests.every_instrument import WRITERS, beside

PARTS = [name for name in WRITERS if name not in ("training", "bench")]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A training with a session of every other instrument, and an experiment, which is of no job."""
    beside(tmp_path, "training", 10, 80, (7,), pid=7)
    for place, name in enumerate(PARTS):
        beside(tmp_path / name, name, 20 + place, 60, (7,), pid=6)
    beside(tmp_path, "bench", 5, 15)
    return tmp_path


def made(job: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(as_json.render(report_of(Job(job).whole())))
    return found


def adds_up(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every node, whose parts add up to it."""
    known = [one["s"] for one in node["parts"] if one["s"] is not None]
    assert not known or sum(known) == pytest.approx(node["s"], abs=1e-9), node["name"]
    yield node
    for one in (*node["parts"], *node.get("beside", [])):
        yield from adds_up(one)


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "bench"])
def test_a_session_alone_has_the_report_of_its_instrument(tmp_path: Path, name: str) -> None:
    beside(tmp_path, name, 10, 80)
    whole = Job(tmp_path).whole()
    own = load(name).report(whole.lead)
    assert text.render(report_of(whole)) == text.render(own)
    assert as_json.render(report_of(whole)) == as_json.render(own)


def test_an_experiment_is_of_no_job(tmp_path: Path) -> None:
    beside(tmp_path, "training", 10, 80)
    beside(tmp_path, "bench", 15, 20)
    whole = Job(tmp_path).whole()
    assert (whole.lead.instrument, whole.members, whole.apart) == ("bench", [], [])


def test_the_leading_sessions_keys_stay_and_the_others_are_below_job(job: Path) -> None:
    whole, found = Job(job).whole(), made(job)
    alone = json.loads(as_json.render(load("training").report(whole.lead)))
    assert {name: found[name] for name in alone} == alone
    assert found.keys() - alone.keys() == {"job"}
    sessions = found["job"]["sessions"]
    assert [one["name"] for one in sessions] == ["training", *PARTS]
    assert sessions[1]["evidence"] == "recorded process 7 of it; 40.0 s of its 40.0 s lie in it"
    assert found["job"]["apart"] == ["bench session 20240129_100005 measures by itself"]
    for member in whole.members:
        own = json.loads(as_json.render(load(member.session.instrument).report(member.session)))
        assert found["job"]["reports"][member.session.instrument] == own


def test_one_list_of_findings_each_with_its_instrument_and_what_its_share_is_of(job: Path) -> None:
    found, whole = made(job)["job"], Job(job).whole()
    own = [
        (one.instrument, each.name)
        for one in whole.sessions
        if (findings := load(one.instrument).report(one).findings) is not None
        for each in findings.found
    ]
    listed = [(one["instrument"], one["name"]) for one in found["findings"]]
    inside = [
        (link["finding"]["instrument"], link["finding"]["name"])
        for one in found["findings"]
        for link in one["links"]
        if link["is_cause"]
    ]
    assert sorted(listed + inside) == sorted(own)  # every finding once, in the list or in what it explains
    for one in found["findings"]:
        if not one["cost_share"] or one["instrument"] == "training":
            assert one["base"] == "the wall time"
        elif one["instrument"] == "profile":
            assert one["base"] == "the profiled steps"
        else:
            assert one["base"] == f"its own {duration(one['cost_s'] / one['cost_share'])}"
    costs = [
        one["cost_s"] or -1.0 if one.get("least_s") is None else one["least_s"] for one in found["findings"]
    ]
    assert costs == sorted(costs, reverse=True)


def test_every_level_of_the_tree_adds_up_and_every_call_has_its_place(job: Path) -> None:
    tree = made(job)["job"]["tree"]
    nodes = list(adds_up(tree))
    steps = next(node for node in nodes if "beside" in node)
    counted = {}
    for one in steps["beside"]:
        words = one["note"].replace(",", "").split()
        counted[one["name"].split(":")[0]] = counted.get(one["name"].split(":")[0], 0) + int(words[0])
        counted[one["name"].split(":")[0]] += int(words[words.index("outside") - 1])
    whole = Job(job).whole()
    assert counted == {
        "rpc": sum(1 for _ in whole.of("rpc")[0].records(CallRecord)),
        "trace": sum(1 for _ in whole.of("trace")[0].records(OperationRecord)),
    }


def test_sections_of_the_others_are_folded_and_no_two_have_one_name(job: Path) -> None:
    report = report_of(Job(job).whole())
    keys = [section.key for section in report.sections]
    assert len(keys) == len({*keys}) and keys[0] == "tree"
    assert {section.key.split("-")[0] for section in report.sections if section.is_folded} == {*PARTS}
    page = html.render_page(report, "")
    charts = page.split('id="chart-')[1:]
    assert len(charts) == len({chart.split('"')[0] for chart in charts})
    assert page.count('class="folded"') == sum(section.is_folded for section in report.sections)
    assert "with profile" in text.render(report) and "with profile" in markdown.render(report)
    assert csv.render(report) == csv.render(load("training").report(Job(job).whole().lead))


def test_one_instrument_of_the_job(job: Path) -> None:
    alone = Job(job).whole("profile")
    assert ([one.instrument for one in alone.sessions], alone.apart) == (["profile"], [])
    with pytest.raises(PerfError) as refused:
        Job(job).whole("profiles")
    assert str(refused.value) == (
        f"no session of the instrument 'profiles' in {str(job)!r}; there are sessions of bench, profile, rpc,"
        " trace, training; did you mean profile?"
    )


def test_a_session_that_cannot_be_read_is_named_and_the_others_shown(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PerfError("it is torn")

    monkeypatch.setattr("flagscale_perf.rpc.analysis.report.read_calls", refuse)
    said = text.render(report_of(Job(job).whole()))
    assert "rpc session 20240129_100020 cannot be read: it is torn" in said
    assert "with profile" in said


def test_a_session_that_is_removed_meanwhile_is_named(job: Path) -> None:
    whole = Job(job).whole()
    (calls,) = whole.of("rpc")
    calls.path.unlink()
    found = report_of(whole).content.as_dict()["job"]
    assert "rpc" not in found["reports"] and "profile" in found["reports"]
    assert f"rpc session {calls.header.session_id} cannot be read: " in found["apart"][0]
