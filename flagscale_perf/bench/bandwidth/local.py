"""What one rank moves by itself: within its own memory, and between host and device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from flagscale_perf.bench.bandwidth.operations import DTYPE, ITEM_BYTES, World

Run = Callable[[], Any]


class Local(NamedTuple):
    """One measurement.

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


def run_of(local: Local, world: World, size_bytes: int) -> Run:
    """The measurement on buffers of this size."""
    return local.make(world, size_bytes // ITEM_BYTES)
