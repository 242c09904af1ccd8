"""Delays that are planted; with two ranks that wait for each other in tests/processes/test_causal.py."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from flagscale_perf.profile.causal import Experiment
from flagscale_perf.spine.delays import Delays
from flagscale_perf.spine.errors import PerfError

MS = 1_000_000


class Model(nn.Module):
    """Calls its first part twice, its second part once."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """A sum of three products."""
        made: torch.Tensor = self.first(given) + self.first(given) + self.second(given)
        return made


def hooks(model: nn.Module) -> int:
    return sum(len(each._forward_pre_hooks) + len(each._forward_hooks) for each in model.modules())


def run(model: nn.Module, text: str, rank: int = 0) -> tuple[Experiment, list[list[float]]]:
    """All steps of an experiment, and the gradients of each."""
    delays, gradients = Delays.parse(text), []
    experiment = Experiment(model, delays, rank)
    assert hooks(model) == 0
    for position in range(delays.length):
        model.zero_grad()
        experiment.begin_step(position, 7 + position)
        model(torch.ones(1, 2)).sum().backward()
        experiment.end_step()
        gradients.append([float(each.grad.sum()) for each in model.parameters()])
    assert experiment.is_over
    experiment.close()
    experiment.close()
    return experiment, gradients


@pytest.mark.parametrize(
    ("place", "runs"),
    [("0", 1), ("0:first", 2), ("0:second", 1), ("0:first:aten::addmm", 2), ("0:second:aten::mm", 0),
     ("0::aten::addmm", 3), ("0::aten::mm", 3)],
)  # fmt: skip
def test_a_delayed_step_has_one_delay_before_each_run_of_its_place(place: str, runs: int) -> None:
    """The backward pass has a product (mm) for each weight's gradient; the input has none."""
    model = Model()
    experiment, gradients = run(model, f"{place},ms=1/2,rounds=2")
    for step in experiment.taken:
        assert step.runs == (runs if step.arm.place is not None else 0)
        assert step.planted_ns >= step.runs * step.arm.delay_ns
        assert (step.planted_ns == 0) == (step.runs == 0)
        assert step.total_ns >= step.planted_ns
    assert [step.iteration for step in experiment.taken] == list(range(7, 15))
    assert hooks(model) == 0
    assert gradients == run(model, "1,ms=1,rounds=4")[1][:1] * 8  # to the bit as without any delay


def test_another_rank_takes_the_same_steps_and_plants_nothing() -> None:
    taken = [run(Model(), "0:first,ms=1,rounds=3", rank)[0].taken for rank in (0, 1)]
    assert [step.arm for step in taken[0]] == [step.arm for step in taken[1]]
    assert {step.planted_ns for step in taken[1]} == {0}


def test_a_module_that_is_not_there_is_refused_on_the_rank_that_should_have_it() -> None:
    delays = Delays.parse("1:third")
    with pytest.raises(PerfError, match="1:third: rank 1 has no module 'third'; it has Model, first, second"):
        Experiment(Model(), delays, rank=1)
    assert Experiment(Model(), delays, rank=0).taken == []


def test_what_ends_within_a_step_leaves_nothing_behind() -> None:
    model = Model()
    experiment = Experiment(model, Delays.parse("0:first:aten::addmm,0:second,ms=1"), 0)
    experiment.begin_step(0, 1)
    assert hooks(model) == 3
    experiment.close()
    assert hooks(model) == 0
    model(torch.ones(1, 2))
    experiment.end_step()
    assert experiment.taken == []
