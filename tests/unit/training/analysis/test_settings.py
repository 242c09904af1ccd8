"""What trainings are configured with: keys that differ, names, and conditions."""

from __future__ import annotations

import pytest

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.training.analysis.settings import (
    Condition,
    canonical,
    differing,
    is_seed,
    name_of,
    settings_of,
)
from flagscale_perf.training.facts import RunFacts
from tests.fakes import make_facts, make_header

KNOWN = ["tensor_parallel", "micro_batch_size", "recompute_granularity", "lr", "mfu", "tokens_per_s"]


def settings(**facts: object) -> dict[str, object]:
    header = make_header(facts=make_facts(**facts))
    return settings_of(header, RunFacts.of(header.facts))


def test_what_differs_is_named_and_nothing_else() -> None:
    one = settings(
        arguments={
            "lr": 1e-4,
            "seed": 1,
            "save": "/a",
            "log_dir": "/a",
            "wandb_exp_name": "a",
            "swiglu": False,
        }
    )
    two = settings(
        hostname="node7",
        pid=7,
        tensor_parallel=4,
        data_parallel=2,
        arguments={
            "lr": 1e-4,
            "seed": 2,
            "save": "/b",
            "log_dir": "/b",
            "swiglu": True,
            "wandb_exp_name": "b",
        },
    )
    assert differing([one, one]) == differing([one]) == differing([]) == []
    assert differing([one, two]) == ["tensor_parallel", "swiglu", "seed"]  # data parallelism follows from it
    assert [is_seed(name) for name in ("seed", "data_seed", "seeds", "seed_lm")] == [True, True, False, False]


def test_what_a_run_does_not_record_is_no_difference() -> None:
    known = settings(arguments={"lr": 1e-4, "seed": 1})
    other = settings(tensor_parallel=4, arguments={"lr": 1e-3, "seed": 1, "of_a_newer_host": 7})
    assert differing([known, settings()]) == differing([settings(), known]) == []
    assert differing([settings(), known, other]) == ["tensor_parallel", "lr"]


def test_a_host_without_arguments_has_its_models_shape() -> None:
    one, two = (settings(model={"hidden": size, "micro_batch": size}) for size in (64, 128))
    assert differing([one, two]) == ["model.hidden"]


def test_a_run_is_called_by_its_own_name_or_the_hosts() -> None:
    facts = make_facts(arguments={"exp_name": None, "wandb_exp_name": "of the host"})
    assert name_of(make_header(facts=facts, perf_run_name="mine")) == "mine"
    assert name_of(make_header(facts=facts)) == "of the host"
    assert name_of(make_header()) is None


@pytest.mark.parametrize("word", ["tp", "TP", "tensor_parallel", "--tensor-parallel"])
def test_a_key_may_be_written_as_users_know_it(word: str) -> None:
    assert canonical(word, KNOWN, "--sort") == "tensor_parallel"
    assert canonical("tokens/s", KNOWN, "--sort") == "tokens_per_s"


def test_a_wrong_key_is_refused_with_the_nearest() -> None:
    with pytest.raises(PerfError) as refused:
        canonical("micro_batchsize", KNOWN, "--sort micro_batchsize")
    assert str(refused.value) == (
        "--sort micro_batchsize: the runs have no 'micro_batchsize'; did you mean micro_batch_size?"
    )


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("tp=2", True),
        ("tp = 2", True),
        ("tp=2.0", True),
        ("tp=02x", False),
        ("tp!=2", False),
        ("tp>=2", True),
        ("tp>2", False),
        ("tp<8", True),
        ("mfu>40%", True),
        ("mfu>0.45", False),
        ("tokens<=10,000", True),
        ("lr=1e-4", True),
        ("recompute_granularity=none", True),
        ("recompute_granularity!=full", True),
        ("recompute_granularity>1", False),
        ("micro_batch_size=none", True),  # unknown
        ("micro_batch_size<100", False),
    ],
)
def test_conditions(text: str, fits: bool) -> None:
    run = {"tensor_parallel": 2, "lr": 0.0001, "mfu": 0.42, "tokens_per_s": 9_000.0}
    run |= {"recompute_granularity": None, "micro_batch_size": None}
    assert Condition(text, KNOWN).fits(run) is fits


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tp", "--where 'tp' is no condition; write one such as tp=2, mfu>40% or seed!=1"),
        ("tp>fast", "--where 'tp>fast': 'fast' is not a number; write one such as tp>2"),
        ("mfuu=2", "--where 'mfuu=2': the runs have no 'mfuu'; did you mean mfu?"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, why: str) -> None:
    with pytest.raises(PerfError) as refused:
        Condition(text, KNOWN)
    assert str(refused.value) == why
