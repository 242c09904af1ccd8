"""A delay that is planted; with two ranks that wait for each other in tests/processes/test_causal.py."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from flagscale_perf.profile.causal import Delay, Experiment
from flagscale_perf.spine.errors import PerfError

TEXT = "rank=1,module=0.inner,ms=2.5"


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU())


def test_a_delay_in_words() -> None:
    assert Delay.parse(TEXT) == Delay(1, "0.inner", 2_500_000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is no delay"),
        ("rank=1,ms=5", "'rank=1,ms=5' is no delay"),
        ("rank=x,module=a,ms=5", "rank=x is no rank"),
        ("rank=1,module=,ms=5", "the module is missing"),
        ("rank=1,module=a,ms=0", "ms=0 is no number above 0"),
        ("rank=1,module=a,ms=fast", "ms=fast is no number above 0"),
    ],
)
def test_what_is_no_delay_is_refused(text: str, said: str) -> None:
    with pytest.raises(PerfError, match=said) as refused:
        Delay.parse(text)
    assert "rank=1,module=decoder.layers.0,ms=5" in str(refused.value)


def test_a_module_that_is_not_there_is_refused_on_the_delayed_rank_alone() -> None:
    with pytest.raises(PerfError, match="no module '7'; it has Sequential, 0, 1"):
        Experiment(model(), Delay(0, "7", 1), rank=0)
    assert Experiment(model(), Delay(0, "7", 1), rank=1).effect() is None


def test_one_step_of_each_pair_is_delayed_by_no_less_than_was_asked_and_the_model_is_left_as_it_was() -> None:
    made, orders = model(), []
    for rank in (0, 1):
        experiment = Experiment(made, Delay(0, "1", 200_000), rank)
        for _ in range(20):
            experiment.begin_step()
            made(torch.ones(1, 2))
            experiment.end_step()
        orders.append([step[0] for step in experiment.steps])
        for is_delayed, planted_ns, took_ns in experiment.steps:
            assert planted_ns >= 200_000 if is_delayed and rank == 0 else planted_ns == 0
            assert took_ns >= planted_ns
        assert (experiment.effect() is None) == (rank == 1)
        experiment.close()
        experiment.close()
    assert orders[0] == orders[1]
    assert [first != second for first, second in zip(orders[0][::2], orders[0][1::2], strict=True)] == [
        True
    ] * 10
    assert not any(module._forward_pre_hooks for module in made.modules())
