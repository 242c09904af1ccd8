"""FLOPs and bytes by module, in the forward and in the backward, against sums by hand and torch's counter."""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from flagscale_perf.profile.standalone.counted import Counted


class Two(nn.Module):
    """4 -> 8 -> 2, the second called by name only, which trackers by module inputs do not see."""

    def __init__(self, recompute: bool = False) -> None:
        super().__init__()
        self.up = nn.Linear(4, 8, bias=False)
        self.down = nn.Linear(8, 2, bias=False)
        self.recompute = recompute

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        inner = checkpoint(self._inner, given, use_reentrant=False) if self.recompute else self._inner(given)
        return self.down(input=inner)

    def _inner(self, given: torch.Tensor) -> torch.Tensor:
        return self.up(given).exp()


def counted(model: nn.Module, given: torch.Tensor) -> Counted:
    mode = Counted(model)
    with mode:
        with mode.part("forward"):
            loss = model(given).sum()
        with mode.part("backward"):
            loss.backward()
    return mode


def flops(mode: Counted) -> dict[tuple[str, str], int]:
    sums: Counter[tuple[str, str]] = Counter()
    for one in mode.work:
        sums[one.part, one.module] += one.flops
    return {key: value for key, value in sums.items() if value}


def test_each_product_belongs_to_its_module() -> None:
    mode = counted(Two(), torch.ones(3, 4))
    assert flops(mode) == {
        ("forward", "up"): 2 * 3 * 4 * 8,
        ("forward", "down"): 2 * 3 * 8 * 2,
        ("backward", "down"): 2 * (2 * 3 * 8 * 2),  # to its input, and to its weight
        ("backward", "up"): 2 * 3 * 4 * 8,  # to its weight: the input needs no gradient
    }


def test_bytes_of_a_product_are_its_inputs_and_its_output() -> None:
    (product,) = (
        one
        for one in counted(Two(), torch.ones(3, 4)).work
        if (one.part, one.module, one.op) == ("forward", "up", "mm")
    )
    assert product.moved_bytes == 4 * (3 * 4 + 4 * 8 + 3 * 8)
    assert product.runs == 1


def test_a_look_at_memory_moves_nothing() -> None:
    looks = [one for one in counted(Two(), torch.ones(3, 4)).work if one.op in ("t", "expand", "detach")]
    assert looks and all(one.moved_bytes == 0 for one in looks)


def test_what_is_computed_again_belongs_to_its_module_and_to_the_backward() -> None:
    mode = counted(Two(recompute=True), torch.ones(3, 4, requires_grad=True))
    assert flops(mode)["backward", "up"] == 3 * (2 * 3 * 4 * 8)  # again, to its input, and to its weight


def test_the_same_sum_as_torchs_counter_with_fake_tensors_too() -> None:
    model, given = Two(), torch.ones(3, 4)
    with FlopCounterMode(display=False) as torchs:
        model(given).sum().backward()
    real = counted(model, given)
    with FakeTensorMode():
        fake = counted(Two(), torch.ones(3, 4))
    assert sum(flops(real).values()) == torchs.get_total_flops()
    assert flops(fake) == flops(real)


class Placed(nn.Module):
    """An embedding, then positions without a gradient, as models with rotary embeddings have them."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 4)
        self.positions = nn.Identity()
        self.positions.register_forward_hook(lambda module, args, out: torch.arange(3).float().cos())

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = self.embedding(ids)
        return rows * self.positions(ids)[:, None]


def test_what_runs_without_a_gradient_takes_no_node_from_the_module_before_it() -> None:
    work = counted(Placed(), torch.tensor([1, 2, 3])).work
    assert [one.module for one in work if one.op == "embedding_dense_backward"] == ["embedding"]


def test_a_question_is_no_operator() -> None:
    class Asking(nn.Module):
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            with torch.autograd.profiler.record_function("asked"):
                return given.exp() if torch.ops.prim.device.default(given).type == "cpu" else given

    work = counted(Asking(), torch.ones(3, 4, requires_grad=True)).work
    assert [one.op for one in work if one.part == "forward"] == ["exp", "detach", "sum"]


def test_no_hook_is_left() -> None:
    model = Two()
    counted(model, torch.ones(3, 4))
    assert all(not each._forward_hooks and not each._forward_pre_hooks for each in model.modules())
