"""The Profiler beside somebody else's profiler, after a failure, with compiled and with wrapped models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from flagscale_perf.profile import profiler as profilers
from flagscale_perf.profile.kineto import Session
from flagscale_perf.profile.profiler import BUSY, COMPILED, Profiler
from flagscale_perf.profile.records import RowRecord, StepRecord, WindowRecord
from flagscale_perf.spine.peers.records import NameRecord
from tests.profiled_events import options_of, tiny_qwen3, train_step

TOKENS = torch.arange(16).reshape(1, 16)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """A small model is slower on several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def trained(model: Any, directory: Path, steps: str = "2-3", count: int = 7) -> tuple[list[Any], list[float]]:
    """Records and losses of so many steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    records: list[Any] = []
    with Profiler(model, options_of(directory, steps), put=records.append) as profiler:
        losses = []
        for iteration in range(1, count + 1):
            with profiler.step(iteration):
                losses.append(train_step(model, optimizer, TOKENS))
    return records, losses


def of(records: list[Any], kind: type) -> list[Any]:
    """Those of a type."""
    return [record for record in records if isinstance(record, kind)]


def names_of(records: list[Any]) -> dict[int, str]:
    """Of all texts."""
    return {0: ""} | {record.number: record.text for record in of(records, NameRecord)}


def modules_of(records: list[Any]) -> set[str]:
    """Paths that rows have."""
    names = names_of(records)
    return {names[row.module] for row in of(records, RowRecord)} - {""}


def hooks_of(model: torch.nn.Module) -> int:
    """How many hooks of the forward pass there are."""
    return sum(len(each._forward_hooks) + len(each._forward_pre_hooks) for each in model.modules())


def test_a_profiler_that_runs_keeps_its_events_and_the_window_says_why_it_has_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with torch.profiler.profile() as alone:
        _, expected = trained(tiny_qwen3(), tmp_path, "100")
    with torch.profiler.profile() as theirs:
        records, losses = trained(tiny_qwen3(), tmp_path)
    products = [
        sum(event.count for event in profile.key_averages() if event.key == "aten::mm")
        for profile in (alone, theirs)
    ]
    assert losses == expected
    assert products[0] == products[1] > 0
    (window,) = of(records, WindowRecord)
    assert names_of(records)[window.reason] == BUSY
    assert (window.steps, window.clean_steps, of(records, RowRecord)) == (0, 2, [])
    assert capsys.readouterr().err.count(f"flagscale_perf profile: {BUSY}\n") == 1


@pytest.mark.parametrize("place", ["start", "stop", "events"])
def test_a_failure_inside_is_said_once_and_the_training_goes_on(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, expected = trained(tiny_qwen3(), tmp_path, "100", 12)
    real_stop = Session.stop

    def broken(session: Session, *args: Any) -> int:
        real_stop(session)
        raise ValueError("broken")

    monkeypatch.setattr(Session, place, broken)
    capsys.readouterr()
    model = tiny_qwen3()
    records, losses = trained(model, tmp_path, "2-3/5", 12)
    assert losses == expected
    assert capsys.readouterr().err == "flagscale_perf profile: profiling ends: ValueError: broken\n"
    assert hooks_of(model) == 0
    assert not profilers.kineto.is_running()
    assert of(records, RowRecord) == []
    names = names_of(records)
    reasons = [] if place == "events" else ["profiling ended: ValueError: broken"]
    assert [names[window.reason] for window in of(records, WindowRecord)] == reasons


@pytest.mark.parametrize("form", ["model.compile()", "torch.compile(model)", "one layer"])
def test_a_compiled_model_has_no_break_more_and_is_as_before(tmp_path: Path, form: str) -> None:
    torch._dynamo.reset()  # imported by this: it takes seconds
    counters = torch._dynamo.utils.counters
    counters.clear()
    model = tiny_qwen3()
    run = model
    if form == "model.compile()":
        model.compile(backend="eager")
    elif form == "torch.compile(model)":
        run = torch.compile(model, backend="eager")
    else:
        model.model.layers[1].compile(backend="eager")
    with torch.no_grad():
        expected = run(input_ids=TOKENS).logits
    graphs = counters["stats"]["unique_graphs"]
    records: list[Any] = []
    with Profiler(run, options_of(tmp_path, "1-2"), put=records.append) as profiler, torch.no_grad():
        for _ in range(6):
            with profiler.step():
                assert torch.equal(run(input_ids=TOKENS).logits, expected)
    with torch.no_grad():
        assert torch.equal(run(input_ids=TOKENS).logits, expected)
    assert counters["stats"]["unique_graphs"] == graphs >= 1
    assert sum(counters["graph_break"].values()) == 0
    assert hooks_of(model) == 0
    (window,) = of(records, WindowRecord)
    modules = modules_of(records)
    if form == "one layer":
        assert "model.layers.0.mlp.up_proj" in modules
        assert not any(path.startswith("model.layers.1") for path in modules)
    else:
        assert (names_of(records)[window.reason], modules) == (COMPILED, set())
    assert sum(step.is_profiled for step in of(records, StepRecord)) == 2
    torch._dynamo.reset()


def test_a_model_in_data_parallelism_has_the_paths_of_the_model_alone(tmp_path: Path) -> None:
    expected = modules_of(trained(tiny_qwen3(), tmp_path)[0])
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        model = torch.nn.parallel.DistributedDataParallel(tiny_qwen3())
        records, _ = trained(model, tmp_path)
    finally:
        distributed.destroy_process_group()
    assert modules_of(records) == expected
    assert "model.layers.1.mlp.down_proj" in expected
    assert hooks_of(model) == 0
