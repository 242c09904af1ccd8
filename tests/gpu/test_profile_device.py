"""A model profiled on a real device: its kernels belong to the modules that launched them, as torch counts
them, too; its collective is a transfer of known size; and nothing of it is left behind.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from flagscale_perf.profile.options import ProfileOptions, Steps
from flagscale_perf.profile.profiler import Profiler
from flagscale_perf.profile.records import CollectiveRecord, MemoryRecord, RowRecord, StepRecord, WindowRecord
from flagscale_perf.spine.peers.records import NameRecord

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

WIDTH, ROWS, LAYERS, STEPS = 2048, 4096, 3, 4


class Block(nn.Module):
    """Two products with something between them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows + self.down(functional.gelu(self.up(self.norm(rows))))


class Model(nn.Module):
    """Some blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            rows = layer(rows)
        return rows.float().pow(2).mean()


@pytest.fixture(scope="module")
def nccl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A group of this process alone."""
    store = torch.distributed.FileStore(str(tmp_path_factory.mktemp("nccl") / "store"), 1)
    torch.distributed.init_process_group(
        "nccl", store=store, rank=0, world_size=1, device_id=torch.device("cuda")
    )
    yield
    torch.distributed.destroy_process_group()


def train(options: ProfileOptions | None = None) -> tuple[list[Any], list[float], Model]:
    """Some steps from the same weights: records, losses and the model."""
    torch.manual_seed(0)
    model = Model().cuda().bfloat16()
    records: list[Any] = []
    profiler = None if options is None else Profiler(model, options, put=records.append)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = torch.randn(ROWS, WIDTH, device="cuda", dtype=torch.bfloat16)
    losses = []
    for iteration in range(1, 2 * STEPS + 4):
        with contextlib.nullcontext() if profiler is None else profiler.step(iteration, tokens=ROWS):
            optimizer.zero_grad()
            loss = model(rows)
            loss.backward()
            if torch.distributed.is_initialized():
                torch.distributed.all_reduce(model.layers[0].up.weight.grad)
            optimizer.step()
            losses.append(float(loss.detach()))
    if profiler is not None:
        profiler.close()
    return records, losses, model


def profiled(directory: Path, **more: Any) -> tuple[list[Any], list[float], Model]:
    """Some steps, each beside a clean one, behind two that warm up."""
    return train(ProfileOptions(Steps.parse(f"3-{2 + STEPS}"), directory, clean=1, **more))


def of(records: list[Any], kind: type) -> list[Any]:
    """Those of a type."""
    return [record for record in records if isinstance(record, kind)]


def names_of(records: list[Any]) -> dict[int, str]:
    """By their numbers."""
    return {0: ""} | {record.number: record.text for record in of(records, NameRecord)}


def test_kernels_belong_to_the_modules_that_launched_them(tmp_path: Path) -> None:
    records, _, _ = profiled(tmp_path, shapes=False, memory=False)
    names = names_of(records)
    (window,) = of(records, WindowRecord)
    assert (window.steps, window.clean_steps, names[window.reason]) == (STEPS, STEPS, "")
    device_ns: dict[tuple[str, str], int] = defaultdict(int)
    for row in of(records, RowRecord):
        device_ns[names[row.module], names[row.phase]] += row.device_ns
    for layer in range(LAYERS):
        for linear in ("up", "down"):
            path = f"layers.{layer}.{linear}"
            # backward has two products for each of forward
            ratio = device_ns[path, "backward"] / device_ns[path, "forward"]
            assert ratio == pytest.approx(2, rel=0.35), (path, ratio)
    for step in of(records, StepRecord):
        if step.is_profiled:
            assert 0 < step.device_busy_ns <= step.total_ns
    # one stream: kernels do not overlap, so that they make the time in which the device is busy
    busy_ns = sum(step.device_busy_ns for step in of(records, StepRecord) if step.is_profiled)
    assert sum(device_ns.values()) == pytest.approx(busy_ns, rel=0.02)


def test_torch_sums_up_the_same_kernels(tmp_path: Path) -> None:
    records, _, _ = profiled(tmp_path, shapes=False, memory=False)
    names = names_of(records)
    ours = sum(row.device_ns for row in of(records, RowRecord) if names[row.op] == "aten::mm") / STEPS
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        train()
    (products,) = [each for each in profile.key_averages() if each.key == "aten::mm"]
    theirs = products.self_device_time_total * 1000 / (2 * STEPS + 3)
    assert ours == pytest.approx(theirs, rel=0.15)


def test_the_training_is_the_same_to_the_bit_and_nothing_is_left(tmp_path: Path) -> None:
    _, losses, model = profiled(tmp_path)
    _, expected, other = train()
    assert losses == expected
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), other.parameters(), strict=True))
    assert sum(len(each._forward_hooks) + len(each._forward_pre_hooks) for each in model.modules()) == 0


def test_products_run_below_the_devices_peak_and_memory_has_its_layers(tmp_path: Path) -> None:
    records, _, _ = profiled(tmp_path)
    names = names_of(records)
    forward = [
        row
        for row in of(records, RowRecord)
        if names[row.op] == "aten::mm" and names[row.phase] == "forward" and ".up" in names[row.module]
    ]
    assert [row.flops for row in forward] == [STEPS * 2 * ROWS * WIDTH * 2 * WIDTH] * LAYERS
    for row in forward:
        assert 1e12 < row.flops / (row.device_ns / 1e9) < 2.5e15
    kept = {names[record.module] for record in of(records, MemoryRecord)}
    assert {f"layers.{layer}.up" for layer in range(LAYERS)} <= kept


def test_a_collective_of_nccl_is_seen_once_a_step_with_its_bytes(tmp_path: Path, nccl: None) -> None:
    records, _, _ = profiled(tmp_path)
    names = names_of(records)
    found = of(records, CollectiveRecord)
    assert len(found) == STEPS
    assert {(each.group_size, each.size_bytes) for each in found} == {(1, 2 * WIDTH * 2 * WIDTH)}
    assert all("all" in names[each.op] and each.total_ns > 0 for each in found)
