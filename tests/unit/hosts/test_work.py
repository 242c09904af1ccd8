"""What a batch of the host shows of a rank's work, against lengths that the test chose."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from flagscale_perf.hosts import work
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.work import Batches, Documents, RankCounter, lengths_of, sources_of

EOD, WIDTH = 7, 40
ROWS = ([5, 30, 1, 4], [40], [1] * 40, [39, 1])  # the last document of a row may go on in another sample
TOKENS, SQUARED = len(ROWS) * WIDTH, sum(length * length for row in ROWS for length in row)


def batch(rows: tuple[list[int], ...] = ROWS) -> dict[str, Any]:
    """As Megatron-LM's dataset makes it; each document but the last one of the first row ends in EOD."""
    tokens = [[token for length in row for token in [1] * (length - 1) + [EOD]] for row in rows]
    tokens[0][-1] = 1
    positions = [[place for length in row for place in range(length)] for row in rows]
    return {"tokens": torch.tensor(tokens), "position_ids": torch.tensor(positions)}


@pytest.mark.parametrize(
    "documents", [Documents(restart=True), Documents(end=EOD)], ids=["positions", "ends"]
)
def test_documents_that_attend_to_themselves_only(documents: Documents) -> None:
    assert lengths_of(batch(), documents) == (TOKENS, SQUARED)
    assert lengths_of(batch(), Documents()) == (TOKENS, TOKENS * WIDTH), "nothing separates them"


def test_drawn_lengths() -> None:
    draw = random.Random(1)
    for _ in range(200):
        row: list[int] = []
        while sum(row) < 64:
            row.append(min(draw.randint(1, 30), 64 - sum(row)))
        expected = 64, sum(length * length for length in row)
        for documents in (Documents(restart=True), Documents(end=EOD)):
            assert lengths_of(batch((row,)), documents) == expected


@pytest.mark.parametrize(
    "offsets", [[0, 5, 25, 32], [[0, 5, 25, 32]], [[0, 5, 25, 32, 32, 32]], [[0, 5, 25, 32, -1, -1]]]
)
def test_offsets_say_it_whatever_else_does(offsets: list[Any]) -> None:
    found = batch() | {"cu_seqlens": torch.tensor(offsets, dtype=torch.int32)}
    for documents in (Documents(), Documents(restart=True)):
        for unpadded in ({}, {"cu_seqlens_unpadded": None}):
            assert lengths_of(found | unpadded, documents) == (32, 5 * 5 + 20 * 20 + 7 * 7)


def test_the_rows_of_several_samples() -> None:
    found = {"cu_seqlens": torch.tensor([[0, 5, 8], [0, 8, 8]])}
    assert lengths_of(found, Documents()) == (16, 25 + 9 + 64)


def test_what_is_on_a_device_is_not_read() -> None:
    """A tensor of the device "meta" raises where anybody reads it."""
    away = {name: each.to("meta") for name, each in batch().items()}
    for documents in (Documents(restart=True), Documents(end=EOD)):
        assert lengths_of(away, documents) is None
    assert lengths_of({"cu_seqlens": torch.zeros(3, device="meta")}, Documents()) is None
    assert lengths_of(away, Documents()) == (TOKENS, TOKENS * WIDTH), "a shape is no reading"


class Host:
    """An iterator of the host, which reads from another; of that one the host wants a method, too."""

    def __init__(self, batches: list[Any]) -> None:
        self.iterable: Any = Loader(batches)

    def __next__(self) -> Any:
        return next(self.iterable)


class Loader:
    """It has no `__iter__`."""

    def __init__(self, batches: list[Any]) -> None:
        self._batches: Iterator[Any] = iter(batches)

    def __next__(self) -> Any:
        return next(self._batches)

    def save_state(self) -> str:
        return "state"


def test_the_host_gets_its_own_batches_and_what_it_asks_for() -> None:
    made, patches = [batch(), batch(), batch()], Patches()
    host = Host(made)
    loader = host.iterable
    counters: list[RankCounter] = []
    hooks: Any = SimpleNamespace(count_by=counters.append)
    batches = Batches(sources_of([None, host, Host([])]), Documents(restart=True), 1)
    work.count_work(hooks, patches, lambda: batches, False)
    (counter,) = counters
    assert next(host) is made[0] and host.iterable.save_state() == "state"
    counter.begin()  # that one was of an evaluation
    assert counter.take() == (None, None, None)
    assert next(host) is made[1] and counter.take() == (TOKENS, SQUARED, None)
    assert counter.spent_ns > 0
    patches.undo()
    assert host.iterable is loader and next(host) is made[2]
    with pytest.raises(StopIteration):
        next(host)


@pytest.mark.parametrize(
    "odd",
    [
        None,
        3,
        [batch()],
        {},
        {"tokens": torch.zeros(4)},
        {"tokens": torch.zeros(1, 4)},
        {"tokens": torch.zeros(4, 3), "position_ids": torch.arange(3).reshape(1, 3)},
    ],
)
def test_a_batch_of_another_form_makes_the_step_unknown_and_is_said_once(odd: Any) -> None:
    told: list[str] = []
    hooks: Any = SimpleNamespace(note=told.append)
    counter = RankCounter(hooks, Documents(restart=True), 1)
    for each in (batch(), odd):
        counter.add(each)
    assert counter.take() == (None, None, None)
    assert set(told) == {work.UNSEEN}
    counter.begin()
    counter.add(batch())
    assert counter.take() == (TOKENS, SQUARED, None)


def test_a_host_that_cannot_say_where_documents_end_is_monitored_without() -> None:
    told: list[str] = []
    hooks: Any = SimpleNamespace(note=told.append)
    work.count_work(hooks, Patches(), lambda: SimpleNamespace().eod, has_experts=True)
    (said,) = told
    assert said.startswith("the ranks' work is not counted: AttributeError")


def test_nothing_is_seen_of_iterators_of_another_kind() -> None:
    class Slotted:
        __slots__ = ("iterable",)

    slotted = Slotted()
    slotted.iterable = iter([])
    for each in (None, [None, iter([]), slotted]):
        assert sources_of(each) == []


def test_parts_of_the_model_that_read_the_same_batches_count_once() -> None:
    """Of a pipeline's last stage only the last part reads; another one may, too."""
    counters: list[RankCounter] = []
    hooks: Any = SimpleNamespace(count_by=counters.append)
    silent, last, again = hosts = [Host([batch()] * 5) for _ in range(3)]
    batches = Batches(sources_of(hosts), Documents(restart=True))
    work.count_work(hooks, Patches(), lambda: batches, False)
    (counter,) = counters
    for reading in ([last, last], [last, again, last, again], [again, again]):
        counter.begin()
        for host in reading:
            next(host)
        assert counter.take() == (2 * TOKENS, 2 * SQUARED, None)
    assert copy.copy(silent.iterable).save_state() == "state"


@pytest.mark.parametrize(
    ("config", "shows"),
    [
        ({"num_experts": 8}, True),
        ({"num_moe_experts": 8, "moe_expert_rank_capacity_factor": None}, True),
        ({"num_moe_experts": 8, "moe_expert_rank_capacity_factor": 1.5}, False),
        ({"num_experts": 8, "moe_pad_expert_input_to_capacity": True}, False),
        ({"num_experts": None, "num_moe_experts": None}, False),
        ({}, False),
    ],
)
def test_a_tensor_of_a_fixed_size_shows_no_tokens(config: dict[str, Any], shows: bool) -> None:
    assert work.shows_experts(SimpleNamespace(**config)) is shows


def test_tokens_that_experts_receive_and_no_layer_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that is recomputed gives its experts the same tokens again."""
    module: Any = ModuleType(work.DISPATCHERS)

    class Dispatcher:
        def dispatch_postprocess(self, tokens: torch.Tensor, probs: None) -> tuple[torch.Tensor, None, None]:
            return tokens * 2, None, probs

    Dispatcher.__module__ = work.DISPATCHERS
    module.Dispatcher = Dispatcher
    monkeypatch.setitem(work.sys.modules, work.DISPATCHERS, module)
    counters: list[RankCounter] = []
    hooks: Any = SimpleNamespace(count_by=counters.append)
    patches = Patches()
    work.count_work(hooks, patches, lambda: None, has_experts=True)
    (counter,) = counters
    given = torch.ones(5, 3, requires_grad=True)
    layer = lambda tokens: Dispatcher().dispatch_postprocess(tokens, None)[0]  # noqa: E731
    checkpoint(layer, given, use_reentrant=False).sum().backward()
    layer(given[:2])
    assert counter.take() == (None, None, 7)
    module.Dispatcher().dispatch_postprocess(torch.ones(()), None)  # a tensor without rows
    assert counter.take() == (None, None, None)
    counter.loses_experts = False
    counter.begin()
    assert counter.take() == (None, None, None), "no layer with experts has run"
    patches.undo()
    layer(given)
    assert counter.take() == (None, None, None)
