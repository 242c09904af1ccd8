"""What is measured: collectives and messages, each with its buffers and a check of its result; and what one
rank moves by itself, within its own memory, and between host and device.

A size is counted as nccl-tests does: a rank's buffer, or, where each rank has a share of it, all shares.
Each run is on the same buffers, out of place but for all-reduce, which torch.distributed has only in place;
the data is checked before the loops that are timed. What is reduced is the largest, which stays what it is
however often an operation runs on its own result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

DTYPE, ITEM_BYTES = "float32", 4

# gloo has no reduce-scatter of its own: what it executes is an all-reduce of the whole buffer.
EXECUTED = {("gloo", "reduce_scatter"): "all_reduce"}


@dataclass(frozen=True)
class World:
    """This rank's number, and torch's modules.

    Attributes:
        torch, dist: the modules.
        rank, ranks: its number, and how many there are.
        device: where its buffers are.
    """

    torch: Any
    dist: Any
    rank: int
    ranks: int
    device: str

    def full(self, count: int, value: float) -> Any:
        """A buffer of so many elements, all with this value."""
        return self.torch.full((count,), value, device=self.device, dtype=getattr(self.torch, DTYPE))


@dataclass(frozen=True)
class Operation:
    """A collective of one size, ready to run.

    Attributes:
        run: once, and in its order with what follows.
        is_right: whether a buffer holds what the first run must have made of it.
        given_bytes, made_bytes: of this rank's inputs and outputs.
    """

    run: Callable[[], Any]
    is_right: Callable[[], bool]
    given_bytes: int
    made_bytes: int


Make = Callable[[World, int], Operation]
Run = Callable[[], Any]


def _all_reduce(world: World, count: int) -> Operation:
    data = world.full(count, world.rank + 1.0)
    largest = world.dist.ReduceOp.MAX
    return Operation(
        lambda: world.dist.all_reduce(data, op=largest),
        lambda: _holds(data, world.ranks),
        *_bytes(data, data),
    )


def _all_gather(world: World, count: int) -> Operation:
    share = world.full(count // world.ranks, world.rank + 1.0)
    whole = world.full(count // world.ranks * world.ranks, 0.0)
    # its name from torch 2.13 on
    gather = getattr(world.dist, "all_gather_single", None) or world.dist.all_gather_into_tensor
    return Operation(lambda: gather(whole, share), lambda: _is_gathered(whole, world), *_bytes(share, whole))


def _reduce_scatter(world: World, count: int) -> Operation:
    whole = world.full(count // world.ranks * world.ranks, world.rank + 1.0)
    share = world.full(count // world.ranks, 0.0)
    scatter = getattr(world.dist, "reduce_scatter_single", None) or world.dist.reduce_scatter_tensor
    largest = world.dist.ReduceOp.MAX
    return Operation(
        lambda: scatter(share, whole, op=largest), lambda: _holds(share, world.ranks), *_bytes(whole, share)
    )


def _all_to_all(world: World, count: int) -> Operation:
    given = world.full(count // world.ranks * world.ranks, world.rank + 1.0)
    made = world.torch.zeros_like(given)
    return Operation(
        lambda: world.dist.all_to_all_single(made, given),
        lambda: _is_gathered(made, world),
        *_bytes(given, made),
    )


COLLECTIVES: Mapping[str, Make] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
}


def message(world: World, count: int, ends: tuple[int, int], both_ways: bool) -> Operation:
    """Sends data from the first of the two ranks to the second, or both ways at once."""
    source, target = ends
    peer = target if world.rank == source else source
    sends, receives = both_ways or world.rank == source, both_ways or world.rank == target
    out, into = world.full(count, world.rank + 1.0), world.full(count, 0.0)
    dist = world.dist

    def run() -> None:
        """As nccl-tests does: both operations of a rank as one group."""
        wanted = [(dist.isend, out)] * sends + [(dist.irecv, into)] * receives
        for work in dist.batch_isend_irecv([dist.P2POp(call, data, peer) for call, data in wanted]):
            work.wait()

    return Operation(run, lambda: not receives or _holds(into, peer + 1), *_bytes(out, into))


def _holds(data: Any, value: float) -> bool:
    return bool((data == value).all())


def _is_gathered(whole: Any, world: World) -> bool:
    return all(_holds(part, place + 1) for place, part in enumerate(whole.chunk(world.ranks)))


def _bytes(given: Any, made: Any) -> tuple[int, int]:
    return given.numel() * given.element_size(), made.numel() * made.element_size()


class Local(NamedTuple):
    """A movement of data by one rank alone.

    Attributes:
        times: how often a run moves the buffer: a copy reads and writes each byte.
        make: a run on buffers of so many elements.
    """

    times: int
    make: Callable[[World, int], Run]


def _copy(world: World, count: int) -> Run:
    source, target = world.full(count, 1.0), world.full(count, 0.0)
    return lambda: target.copy_(source)


def _triad(world: World, count: int) -> Run:
    left, right, made = (world.full(count, value) for value in (1.0, 2.0, 0.0))
    return lambda: world.torch.add(left, right, alpha=0.5, out=made)


def _transfer(is_pinned: bool, to_device: bool, to_host: bool) -> Callable[[World, int], Run]:
    """Both ways at once run on two streams."""

    def make(world: World, count: int) -> Run:
        torch, dtype = world.torch, getattr(world.torch, DTYPE)
        sent, received = (torch.ones(count, dtype=dtype, pin_memory=is_pinned) for _ in range(2))
        taken, given = world.full(count, 0.0), world.full(count, 2.0)
        copies = [(taken, sent)] * to_device + [(received, given)] * to_host
        streams = [torch.cuda.Stream() for _ in copies]

        def run() -> None:
            for stream, (target, source) in zip(streams, copies, strict=True):
                with torch.cuda.stream(stream):
                    target.copy_(source, non_blocking=True)

        return run

    return make


MEMORY: Mapping[str, Local] = {"copy": Local(2, _copy), "triad": Local(3, _triad)}
HOST_DEVICE: Mapping[str, Local] = {
    f"{way}, {'pinned' if is_pinned else 'pageable'}": Local(times, _transfer(is_pinned, *ways))
    for is_pinned in (True, False)
    for way, times, ways in (
        ("host to device", 1, (True, False)),
        ("device to host", 1, (False, True)),
        ("both ways", 2, (True, True)),
    )
}


def locals_of(device: str) -> dict[str, Local]:
    """All local measurements of a rank on this device."""
    return dict(MEMORY) | (dict(HOST_DEVICE) if device.startswith("cuda") else {})
