"""Predictions and what became of them, on disk."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from flagscale_perf.analysis.replays import Prediction
from flagscale_perf.whatif import ledger

MADE = Prediction(
    text="m=16",
    kind="B",
    measured_ns=100.0,
    predicted_ns=80.0,
    low_ns=70.0,
    high_ns=90.0,
    parts={"replay": 3.0, "sampling": 4.0, "drift": 0.0, "record": 8.66},
    plain_ns=10.0,
    ceiling_ns=60.0,
    steps=20,
    evidence="20 captured steps, 1-20",
    checked=(0, 0),
    gain_half_ns=9.0,
)


def test_a_prediction_and_its_outcome_are_a_line_each(tmp_path: Path) -> None:
    assert ledger.enter(tmp_path, "run.jsonl", MADE) == tmp_path / ledger.NAME
    ledger.enter(tmp_path, "run.jsonl", MADE._replace(text="m=8", kind="A"))
    first, _ = ledger.entries(tmp_path)
    assert ledger.check(first, "new", 95.0).is_hit is False
    lines = [json.loads(line) for line in (tmp_path / ledger.NAME).read_text().splitlines()]
    assert {*lines[0]} == {
        *("time_s", "run", "change", "kind", "measured_ns", "predicted_ns", "low_ns", "high_ns", "parts"),
        *("plain_ns", "steps"),
    }
    assert {key: lines[2][key] for key in ("of", "new_run", "outcome_ns", "hit")} == {
        "of": 0, "new_run": "new", "outcome_ns": 95.0, "hit": False,
    }  # fmt: skip
    first, second = ledger.entries(tmp_path)
    assert (first.outcome_ns, first.is_hit, second.outcome_ns) == (95.0, False, None)
    assert ledger.scores([first, second]) == {"B": [(1.5, False)]}
    assert ledger.doubt(tmp_path, (0.02, "here")).drift == 0.02


def test_what_is_known_of_a_kind_is_known_of_runs_nearby(tmp_path: Path) -> None:
    for name, outcome_ns in (("one", 81.0), ("two", 99.0)):
        ledger.enter(tmp_path / "jobs" / name / "perf", "run.jsonl", MADE)
        (entry,) = ledger.entries(tmp_path / "jobs" / name / "perf")
        ledger.check(entry, "new", outcome_ns)
    found = ledger.doubt(tmp_path / "jobs" / "one" / "perf", (0.01, "")).scores["B"]
    assert [is_hit for _, is_hit in found] == [True, False]
    assert ledger.doubt(tmp_path / "other" / "job" / "perf", (0.01, "")).scores == {}


def test_what_is_no_line_of_it_is_passed_over(tmp_path: Path) -> None:
    path = ledger.enter(tmp_path, "run.jsonl", MADE)
    odd = [
        '{"of": 9, "outcome_ns": 1, "hit": true}',
        '{"of": 0, "outcome_ns": null, "hit": true}',
        "[1]",
        "{",
    ]
    path.write_text(path.read_text() + "\n".join(odd))
    ledger.enter(tmp_path, "run.jsonl", MADE)
    assert [entry.outcome_ns for entry in ledger.entries(tmp_path)] == [None, None], "a torn line is ended"
    assert ledger.entries(tmp_path / "none") == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_where_the_directory_cannot_be_written_it_is_the_user_s_cache(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o500)
    path = ledger.enter(tmp_path / "run", "run.jsonl", MADE)
    assert path.parent != tmp_path / "run"
    assert len(ledger.entries(tmp_path / "run")) == 1


def test_a_link_in_its_place_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ledger.NAME).symlink_to(tmp_path / "other")
    assert ledger.enter(tmp_path / "run", "run.jsonl", MADE).parent != tmp_path / "run"
    assert (tmp_path / "other").read_text() == "kept\n"
