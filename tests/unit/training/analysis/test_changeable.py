"""What a training hands over so that changes of it are predicted, and the questions that have no answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.replays import Doubt, MissingRecordError, Prediction, engine
from flagscale_perf.training.analysis.changeable import ChangeableRun
from flagscale_perf.training.records import CaptureRecord
from tests.captured_runs import ARGUMENTS, TOKENS, evenly, make_late, write_run
from tests.pipelines import Schedule

MS = 1_000_000


def run_of(tmp_path: Path, schedule: Schedule, **facts: Any) -> ChangeableRun:
    return ChangeableRun(open_session(write_run(tmp_path / "perf", schedule, **facts)))


def predicted(run: ChangeableRun, text: str) -> Prediction:
    found = engine()
    assert found is not None
    return run.replays().predict(found.changes([text], run.phases), Doubt())


def step_ns(schedule: Schedule) -> float:
    return schedule.run()[1] / (schedule.steps - 1)


def test_a_rank_at_its_peers_speed_is_the_run_without_its_lateness(tmp_path: Path) -> None:
    run = run_of(tmp_path, make_late(evenly(), 1, 15))
    found = predicted(run, "rank=1 forward*=peers")
    assert found.measured_ns == pytest.approx(step_ns(make_late(evenly(), 1, 15)), abs=10)
    assert found.predicted_ns == pytest.approx(step_ns(evenly()), abs=10)
    assert (found.steps, found.evidence) == (8, "8 captured steps, 8-15")
    assert found.is_gain


def test_other_stages_follow_from_the_host_s_layers(tmp_path: Path) -> None:
    four = evenly(stages=4)
    for where in four.times:
        four.times[where] //= 1 if where[1] == "optimizer_inner_step" else 2
    found = predicted(run_of(tmp_path, evenly()), "pp=4")
    assert found.predicted_ns == pytest.approx(step_ns(four), rel=0.001)


def test_rates_are_made_of_the_host_s_integers(tmp_path: Path) -> None:
    run = run_of(tmp_path, evenly())
    found = predicted(run, "m=8")
    assert found.samples == 2
    rates = run.rates(found)
    assert rates["tokens/s"] == pytest.approx(2 * TOKENS * 1e9 / found.predicted_ns)
    assert rates["MFU %"] == pytest.approx(100 * 2 * 4e12 * 1e9 / found.predicted_ns / (1e14 * 4))
    wider = predicted(run, "dp=4")
    assert (wider.samples, wider.ranks) == (1, 2)
    assert run.rates(wider)["MFU %"] == pytest.approx(100 * 4e12 * 1e9 / wider.predicted_ns / (1e14 * 8))


def test_pauses_count_as_they_are_spread_over_the_steps(tmp_path: Path) -> None:
    run = run_of(tmp_path, evenly(), pauses_ns=(80 * MS, 160 * MS))
    plain = predicted(run, "m=4")
    none = predicted(run, "checkpoint=0")
    assert none.measured_ns == plain.measured_ns + 20 * MS
    assert none.predicted_ns == plain.measured_ns
    half = predicted(run, "checkpoint=async")
    assert half.low_ns <= plain.measured_ns and half.high_ns >= plain.measured_ns + 20 * MS
    assert run.usual_ns("checkpoint=0") == run.usual_ns("m=4") + 20 * MS
    assert predicted(run, "evaluation*=0.5").gain_ns == 5 * MS


def test_a_rank_without_peers_is_as_it_was_in_earlier_steps(tmp_path: Path) -> None:
    """Steps 7 to 11 were captured unasked; from 12 on the rank is late."""
    schedule = evenly(replicas=1, steps=16)
    for where in schedule.times:
        if where[:2] == (0, "forward") and where[2] >= 5:
            schedule.times[where] += 15 * MS
    windows = CaptureRecord(7, 11, [], "settled"), CaptureRecord(12, 30, [])
    found = predicted(run_of(tmp_path, schedule, windows=windows), "rank=0 forward=peers")
    assert found.evidence == "11 captured steps, 12-22"
    assert found.predicted_ns == pytest.approx(step_ns(evenly(replicas=1)), abs=10)


QUESTIONS: list[tuple[str, dict[str, Any], str, str]] = [
    ("m=8", {"windows": ()}, "captured steps of every rank", "--perf-capture-steps 20"),
    ("m=8", {"world_size": 8}, "captured steps of every rank", "flagscale-perf capture"),
    ("m=8", {"pipeline_schedule": "dualpipev"}, r"\(the schedule 'dualpipev' is not known\)", "capture"),
    ("m=8", {"schedule": evenly(steps=3)}, "3 captured steps of every rank; there are 2", "--steps 20"),
    (
        "rank=0 forward=peers",
        {"schedule": evenly(replicas=1)},
        "peers of rank 0",
        "while the rank",
    ),
    ("pp=4", {"arguments": {}}, "how many layers each stage has", "--num-layers"),
    ("pp=2", {"schedule": evenly(stages=1)}, "what one layer takes", "--with RUN"),
    ("dp=2", {"schedule": evenly(replicas=1)}, "what an exchange of gradients", "--with RUN"),
    ("data_loading=0", {}, "a part of the captured steps that is data_loading", "--perf-capture-steps"),
    (
        "p2p*=0.5",
        {"schedule": evenly(stages=1)},
        "a part of the captured steps that is p2p",
        "--perf-capture-",
    ),
    ("checkpoint=async", {}, "a pause of that kind: this run has no checkpoint", "--save-interval"),
    ("evaluation=0", {}, "a pause of that kind: this run has no evaluation", "--eval-interval"),
    ("gc=0", {}, "a pause of that kind: this run has no gc", "--perf-profile-steps"),
    ("recompute=full", {}, "a profile of the operators", "--perf-profile-steps 20-31"),
    ("mbs=4", {}, "a profile of the operators", "--perf-profile-steps 20-31"),
    ("overlap=on", {}, "how operators behave with overlap=on", "--perf-capture-steps 20"),
    ("tp=2", {}, "how operators behave with tp=2", "--perf-capture-steps 20"),
    ("seq=8192", {}, "how operators behave with seq=8192", "--perf-capture-steps 20"),
]


@pytest.mark.parametrize(("text", "facts", "record", "command"), QUESTIONS, ids=lambda value: str(value)[:24])
def test_a_question_whose_record_is_missing_gets_no_number(
    tmp_path: Path, text: str, facts: dict[str, Any], record: str, command: str
) -> None:
    own = dict(facts)
    run = run_of(tmp_path, own.pop("schedule", evenly()), **own)
    with pytest.raises(MissingRecordError, match=record) as refused:
        predicted(run, text)
    assert command in refused.value.command
    assert "\n" not in str(refused.value)


def test_the_host_s_flag_of_one_change_and_what_another_lacks(tmp_path: Path) -> None:
    run = run_of(tmp_path, evenly())
    change = engine().changes(["forward*=0.5"], run.phases)[0]  # type: ignore[union-attr]
    assert run.replays().predict([change]).gain_ns > 0
    with pytest.raises(MissingRecordError):
        run.replays().predict([change._replace(kind="C", name="mbs", how="=", value="4")])
    assert run.flag_of(change) == ""
    assert run.flag_of(change._replace(name="m", value="8")) == "--global-batch-size 16"


def test_layers_are_known_where_all_are_alike(tmp_path: Path) -> None:
    odd = ARGUMENTS | {"moe_layer_freq": [0, 1, 1, 1, 1, 1, 1, 1]}
    with pytest.raises(MissingRecordError, match="how many layers"):
        predicted(run_of(tmp_path, evenly(), arguments=odd), "pp=4")
