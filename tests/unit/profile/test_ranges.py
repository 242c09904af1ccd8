"""Which modules have a range, and how it is closed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from flagscale_perf.profile.kineto import Session
from flagscale_perf.profile.ranges import Ranges, paths_of


class Raising(nn.Module):
    """Does not come to an end."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Raises."""
        raise RuntimeError("enough is known")


class Wrapper(nn.Module):
    """As data parallelism and mixed precision wrap a model."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def test_paths_have_neither_wrappers_nor_an_empty_name() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    assert list(paths_of(Wrapper(Wrapper(model)))) == ["Sequential", "0", "1"]
    assert list(paths_of([Wrapper(model), nn.Linear(2, 2)])) == ["0.Sequential", "0.0", "0.1", "1.Linear"]


def test_a_range_is_closed_where_the_forward_pass_raises() -> None:
    model = nn.Sequential(nn.Linear(2, 2), Raising())
    ranges, session = Ranges(model), Session()
    ranges.attach()
    session.start()
    with pytest.raises(RuntimeError, match="enough"):
        model(torch.ones(1, 2))
    session.stop()
    ranges.detach()
    events = session.events(1000)
    found = {events.names[name]: int(ns) for name, ns in zip(events.name, events.duration_ns, strict=True)}
    assert {"module Sequential", "module 0", "module 1"} <= set(found)
    assert found["module 1"] < found["module Sequential"]
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())


def test_what_is_compiled_has_no_range_and_is_named() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 2)))
    model[1].compile(backend="eager")
    ranges = Ranges(model)
    assert (ranges.paths, ranges.compiled) == (["Sequential", "0"], ["1"])
    whole = Ranges(torch.compile(nn.Linear(2, 2), backend="eager"))
    assert (whole.paths, whole.compiled) == ([], ["Linear"])


class Layer(nn.Module):
    """One of Megatron-Core: it knows its number in the whole model, from 1; so does its attention."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.layer_number = number
        self.attention = nn.Linear(2, 2)
        self.attention.layer_number = number


def test_layers_of_a_pipelines_stage_have_their_numbers_in_the_whole_model() -> None:
    stage = nn.Module()
    stage.layers = nn.ModuleList([Layer(3), Layer(4)])
    assert list(paths_of(stage)) == [
        *("Module", "layers", "layers.2", "layers.2.attention", "layers.3", "layers.3.attention"),
    ]


def test_layers_that_do_not_know_their_number_keep_that_of_their_list() -> None:
    assert list(paths_of(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))) == ["Sequential", "0", "1"]


def test_what_another_stage_has_is_no_module_of_this_one() -> None:
    model = nn.ModuleDict({"layers": nn.ModuleList([nn.Identity(), nn.Linear(2, 2)]), "norm": nn.Identity()})
    assert list(paths_of(model)) == ["ModuleDict", "layers", "layers.1"]
