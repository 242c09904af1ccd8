"""The list of changes that gain the most: in the report as in the command, each as it is asked for alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.offers import table_of
from flagscale_perf.analysis.replays import Change, Offer
from flagscale_perf.cli import main
from flagscale_perf.report.text import alone
from flagscale_perf.training.analysis.best import MOST, option_of
from flagscale_perf.training.analysis.blocks import report_of
from flagscale_perf.training.analysis.fold import read_report
from tests.captured_runs import evenly, make_late, write_run
from tests.fakes import make_facts

TRAINER, BRIDGE = "transformers 5.23.0 Trainer", "Megatron-Bridge 0.3.1"
SETTINGS = dict.fromkeys(
    ("train.global_batch_size", "model.pipeline_model_parallel_size", "dataset.num_workers"), 1
)


@pytest.fixture()
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "one" / "alone", make_late(evenly(), 1, 15))


def test_a_late_rank_stands_in_the_list_as_it_is_predicted_alone(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offers = read_report(open_session(run)).offers
    assert offers is not None and 1 < len(offers) <= MOST
    gains = [offer.gain for offer in offers]
    assert gains == sorted(gains, reverse=True) or not all(offer.is_gain for offer in offers)
    late = next(offer for offer in offers if offer.change == "rank=1 forward=peers")
    assert late.gain == pytest.approx(355 / 310 - 1, rel=1e-3)
    assert late.most is not None and late.least < late.gain < late.most
    assert main(["what-if", str(run.parent), "rank=1", "forward=peers", "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    half_ns = one["high_ns"] - one["predicted_ns"]
    without_drift_ns = (half_ns**2 - one["parts"]["drift"] ** 2) ** 0.5  # of a gain both sides have it
    assert one["measured_ns"] / (one["predicted_ns"] + without_drift_ns) - 1 == pytest.approx(late.least)


def test_the_report_and_the_command_have_one_table(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = read_report(open_session(run))
    (section,) = [one for one in report_of(found).sections if one.key == "what-if"]
    assert found.offers is not None
    assert section.blocks == table_of(found.offers, "step")
    assert main(["what-if", str(run.parent)]) == 0
    assert capsys.readouterr().out == alone(section.blocks) + "\n"
    assert main(["what-if", str(run.parent), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found.as_dict()["offers"]


def test_more_micro_batches_count_by_what_is_trained_and_have_the_host_s_option(run: Path) -> None:
    offers = read_report(open_session(run)).offers or []
    more = next(offer for offer in offers if offer.change == "m=8")
    assert more.predicted_ms > more.step_ms
    assert more.gain == pytest.approx(2 * more.step_ms / more.predicted_ms - 1)
    assert more.option.startswith("--global-batch-size ")


def test_an_even_run_of_one_rank_has_nothing_to_gain(tmp_path: Path) -> None:
    run = write_run(tmp_path, evenly(stages=1, replicas=1))
    report = read_report(open_session(run))
    assert [offer.change for offer in report.offers or []] in ([], ["data_loading=0"])
    assert report.critical_path is not None and {row.rank for row in report.critical_path.rows} <= {0, None}


@pytest.mark.parametrize(
    ("host", "change", "option"),
    [
        ("FlagScale", Change("m", "=", "16", "", "B"), "--global-batch-size 64"),
        ("FlagScale", Change("pp", "=", "4", "", "B"), "--pipeline-model-parallel-size 4"),
        ("FlagScale", Change("data_loading", "=", "0", "", "A"), "--num-workers"),
        ("FlagScale", Change("forward", "=", "peers", "rank=3", "A"), ""),
        (TRAINER, Change("m", "=", "16", "", "B"), "--gradient_accumulation_steps 16"),
        (TRAINER, Change("mbs", "=", "4", "", "C"), "--per_device_train_batch_size 4"),
        (TRAINER, Change("data_loading", "=", "0", "", "A"), "--dataloader_num_workers"),
        (TRAINER, Change("checkpoint", "=", "async", "", "A"), ""),
        (TRAINER, Change("pp", "=", "4", "", "B"), ""),
        (BRIDGE, Change("m", "=", "16", "", "B"), "train.global_batch_size=64"),
        (BRIDGE, Change("pp", "=", "4", "", "B"), "model.pipeline_model_parallel_size=4"),
        (BRIDGE, Change("data_loading", "=", "0", "", "A"), "dataset.num_workers"),
        (BRIDGE, Change("ep", "=", "2", "", "C"), ""),
        ("lightning 2.6.6 Trainer", Change("m", "=", "16", "", "B"), "Trainer.accumulate_grad_batches"),
    ],
)
def test_the_host_s_own_option_with_its_value_where_that_is_known(
    host: str, change: Change, option: str
) -> None:
    arguments = SETTINGS if host == BRIDGE else None
    facts = make_facts(host=host, micro_batch_size=1, data_parallel=4, arguments=arguments)
    assert option_of(change, facts) == option


def test_an_interval_that_is_open_says_so() -> None:
    offer = Offer("m=8", "B", 0.2, -0.4, None, 100.0, 160.0, "6 captured steps, 1-6", 0, 0, "")
    text = alone(table_of([offer, replace(offer, most=0.5, least=0.1, hits=3, checks=4)], "step"))
    assert "no gain that is sure" in text and "3 of 4" in text
    assert (
        alone(table_of([], "step"))
        == "  No change that was tried would gain anything, by a replay of captured steps."
    )
