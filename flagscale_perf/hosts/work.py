"""Counts a rank's work where it differs from step to step: lengths of packed documents, as the host's batches
show them on the CPU before they are copied to the device, and tokens that the rank's experts receive.

Nothing here reads what is on a device, keeps a batch or makes one of its own.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from flagscale_perf.hooks import TrainingHooks
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.errors import raised_by_signal
from flagscale_perf.training.work import RankWork

DISPATCHERS = "megatron.core.transformer.moe.token_dispatcher"
# Under these the tensor that experts are given is as large as the most that they may get.
FIXED_ARGUMENTS = ("moe_pad_expert_input_to_capacity", "moe_expert_rank_capacity_factor")
# What returns the tokens that the rank's experts are given: in this and in earlier versions.
RECEIVING = ("dispatch_postprocess", "token_permutation")
OFFSETS, TOKENS = ("cu_seqlens_unpadded", "cu_seqlens"), ("tokens", "input_ids")  # the first that is there
UNSEEN = "the host's batches do not show how long their documents are: FLOPs count whole sequences"
Lengths = tuple[int, int]  # of the documents in a micro-batch: their sum, and that of their squares


class Documents(NamedTuple):
    """How a host separates the documents in a sequence without saying where they begin.

    Attributes:
        restart: positions begin again at each document.
        end: the token that ends a document; None where a sequence is one document.
    """

    restart: bool = False
    end: int | None = None


class Batches(NamedTuple):
    """Where a host's batches come from, and what is in them.

    Attributes:
        sources: iterators of the host that read from another, their `iterable`; one for each part of the
            model, of which all that read get the same batches.
        documents: how they are separated.
        ranks: see `WorkCounter`.
    """

    sources: Sequence[Any]
    documents: Documents = Documents()
    ranks: int = 0


def lengths_of(batch: Any, documents: Documents) -> Lengths | None:
    """The lengths in a batch; None where it does not show them. Reads no tensor that is on a device. Raises
    anything for a batch of another form.
    """
    offsets, tokens = _first(batch, OFFSETS), _first(batch, TOKENS)
    if offsets is not None:
        return _by_offsets(offsets) if offsets.is_cpu else None
    if tokens is None or tokens.dim() != 2:
        return None
    rows, width = tokens.shape
    if documents.restart:
        positions = batch["position_ids"]
        is_read = positions.is_cpu and positions.shape == tokens.shape
        return (rows * width, _by_positions(positions)) if is_read else None
    if documents.end is None:
        return rows * width, rows * width * width
    return (rows * width, _by_ends(tokens, documents.end)) if tokens.is_cpu else None


def _first(batch: Any, names: Sequence[str]) -> Any:
    for name in names:  # written out: a generator costs a microsecond, for each micro-batch
        found = batch.get(name)
        if found is not None:
            return found
    return None


def _by_offsets(offsets: Any) -> Lengths:
    """`offsets`: where documents begin and the last one ends, row by row, filled up with less."""
    rows = offsets.tolist() if offsets.dim() > 1 else [offsets.tolist()]
    lengths = [after - before for row in rows for before, after in pairwise(row) if after > before]
    return sum(lengths), sum(length * length for length in lengths)


def _by_positions(positions: Any) -> int:
    """Squared lengths; the last position of a document says where the one before it ends, so that only that
    one is read of each.
    """
    rows, width = positions.shape
    held, total = memoryview(positions.numpy()), 0
    for row in range(rows):
        left = width
        while left > 0:
            length = held[row, left - 1] + 1
            if not 0 < length <= left:
                raise ValueError("positions that do not begin again at each document")
            total += length * length
            left -= length
    return total


def _by_ends(tokens: Any, end: int) -> int:
    """Squared lengths; the end of a row ends a document, too."""
    rows, width = tokens.shape
    ends = (tokens.numpy() == end).reshape(-1).nonzero()[0].tolist()
    ends = sorted({-1, *ends, *range(width - 1, rows * width, width)})
    return sum((after - before) ** 2 for before, after in pairwise(ends))


class RankCounter:
    """The `WorkCounter` of this process.

    Attributes:
        ranks: see there.
        spent_ns: what counting has taken of the training thread since the step began.
        loses_experts: a layer has not shown what its experts received.
    """

    def __init__(self, hooks: TrainingHooks, documents: Documents, ranks: int) -> None:
        self.ranks = ranks
        self.loses_experts = False
        self._hooks, self._documents = hooks, documents
        self.begin()

    def begin(self) -> None:
        """Forgets what was counted before."""
        self.spent_ns = 0
        self._tokens = self._squared_lengths = self._expert_tokens = self._batches = self._layers = 0
        self._is_unseen = False
        self._reader: object = None  # of the first batch

    def take(self) -> RankWork:
        """None for what no batch has shown, or not every one of them."""
        experts = self._expert_tokens if self._layers and not self.loses_experts else None
        if self._is_unseen or not self._batches:
            return None, None, experts
        return self._tokens, self._squared_lengths, experts

    def add(self, batch: Any, reader: object = None) -> None:
        """One more batch of the host. Another reader than the step's first reads the same ones again. Raises
        nothing of its own.
        """
        if self._batches and reader is not self._reader:
            return
        start_ns = monotonic_ns()
        self._reader = reader
        self._batches += 1
        try:
            lengths = lengths_of(batch, self._documents)
        except Exception as error:  # whatever a batch of another form leads to
            if raised_by_signal(error):
                raise
            lengths = None
        if lengths is None:
            self._is_unseen = True
            if self.ranks:
                self._hooks.note(UNSEEN)
        else:
            self._tokens += lengths[0]
            self._squared_lengths += lengths[1]
        self.spent_ns += monotonic_ns() - start_ns

    def receive(self, tokens: int) -> None:
        """One more layer has given its experts so many tokens."""
        self._layers += 1
        self._expert_tokens += tokens


class _Counted:
    """The host's iterator, which it asks for a batch by `next`, and for whatever else it has."""

    def __init__(self, host: Any, counter: RankCounter) -> None:
        self._host, self._add = host, counter.add

    def __iter__(self) -> _Counted:
        return self

    def __next__(self) -> Any:
        batch = next(self._host)
        self._add(batch, self)
        return batch

    def __getattr__(self, name: str) -> Any:
        if name == "_host":  # a copy asks for other attributes before it has its own
            raise AttributeError(name)
        return getattr(self._host, name)


def sources_of(iterators: Any) -> list[Any]:
    """Of the host's iterators, one for each part of the model, those that show where they have batches from.
    Not every part reads any: of a pipeline the first and the last do.
    """
    every = iterators if isinstance(iterators, list) else [iterators]
    return [each for each in every if "iterable" in getattr(each, "__dict__", {})]


def shows_experts(config: Any) -> bool:
    """Whether the tokens that experts receive show, under these arguments or this configuration."""
    has_experts = getattr(config, "num_experts", None) or getattr(config, "num_moe_experts", None)
    return bool(has_experts) and not any(getattr(config, name, None) for name in FIXED_ARGUMENTS)


def count_work(
    hooks: TrainingHooks, patches: Patches, batches: Callable[[], Batches | None], has_experts: bool
) -> None:
    """Counts in a training: what is in its batches, as they are read for the first time, and what its experts
    receive. `batches` returns None where they need not be looked at, or cannot be. A failure is reported, and
    the training is monitored without.
    """
    try:
        _count_work(hooks, patches, batches(), has_experts)
    except Exception as error:  # whatever it is: the monitor goes on
        if raised_by_signal(error):
            raise
        hooks.note(f"the ranks' work is not counted: {type(error).__name__}: {error}")


def _count_work(hooks: TrainingHooks, patches: Patches, batches: Batches | None, has_experts: bool) -> None:
    if batches is None and not has_experts:
        return
    sources, documents, ranks = batches or Batches([])
    counter = RankCounter(hooks, documents, ranks)
    hooks.count_by(counter)
    for source in sources:
        patches.set(source, "iterable", _Counted(source.iterable, counter))
    if has_experts:
        _patch_experts(counter, patches)


def _patch_experts(counter: RankCounter, patches: Patches) -> None:
    """Lets the counter see how many tokens each layer gives this rank's experts: the host knows the size of
    the tensor that they are in, where it did not ask the device for a fixed one.
    """
    import torch

    task_of_backward = getattr(torch._C, "_current_graph_task_id", None)
    module = sys.modules.get(DISPATCHERS) if task_of_backward else None
    for owner in vars(module).values() if module else ():
        if isinstance(owner, type) and owner.__module__ == DISPATCHERS:
            for name in vars(owner).keys() & set(RECEIVING):
                patches.wrap(
                    owner, {name: functools.partial(_receiving, counter=counter, task=task_of_backward)}
                )


def _receiving(original: Callable[..., Any], counter: RankCounter, task: Any) -> Callable[..., Any]:
    """`task` returns the number of the backward pass that calls; below 0 there is none."""

    @functools.wraps(original)
    def given(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        try:
            if task() < 0:  # else a layer is recomputed
                counter.receive(result[0].shape[0])
        except Exception as error:  # a dispatcher of another form
            if raised_by_signal(error):
                raise
            counter.loses_experts = True
        return result

    return given
