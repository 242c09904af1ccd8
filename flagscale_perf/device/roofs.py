"""Measures the highest rates that a device reaches, by products of large matrices and a copy."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

# Sides of the square matrices: large enough for the best rate, small enough for any memory.
SIDES = {"cuda": 8192, "cpu": 1024}
COPY_BYTES = {"cuda": 1 << 30, "cpu": 256 << 20}
CACHES = 4  # a copy is this many times larger than the last cache, so that it does not fit
_CACHE = Path("/sys/devices/system/cpu/cpu0/cache")


class Best(NamedTuple):
    """The best of many runs.

    Attributes:
        seconds: that the fastest took.
        rounds: runs.
    """

    seconds: float
    rounds: int


def kind_of_device(torch: Any) -> str:
    """Either `cuda` or `cpu`."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def product(torch: Any, dtype: Any, side: int, seconds: float) -> Best:
    """A product of two square matrices, 2 * side^3 FLOP. Raises RuntimeError, as torch does, if memory is
    short or the device has no product of that type.
    """
    kind = kind_of_device(torch)
    left, right = (torch.randn(side, side, device=kind, dtype=dtype) for _ in range(2))
    out = torch.empty(side, side, device=kind, dtype=dtype)
    return _best(torch, lambda: torch.matmul(left, right, out=out), seconds)


def copy(torch: Any, size_bytes: int, seconds: float) -> Best:
    """A copy of this many bytes, each read once and written once. Raises RuntimeError if memory is short."""
    kind = kind_of_device(torch)
    source = torch.ones(size_bytes // 4, device=kind)
    target = torch.zeros_like(source)
    return _best(torch, lambda: target.copy_(source), seconds)


def roofs(torch: Any, dtypes: tuple[str, ...], seconds: float) -> dict[str, int]:
    """FLOP/s by `matmul.DTYPE`, and bytes/s read and written of `copy`, each measured for this long. What the
    device cannot do is left out.
    """
    kind = kind_of_device(torch)
    side, size_bytes = SIDES[kind], copy_bytes(kind)
    found = {}
    for dtype in dtypes:
        try:
            best = product(torch, getattr(torch, dtype), side, seconds)
        except RuntimeError:  # no product of this type here
            continue
        found[f"matmul.{dtype}"] = int(2 * side**3 / best.seconds)
    with contextlib.suppress(RuntimeError):  # no memory for it
        found["copy"] = int(2 * size_bytes / copy(torch, size_bytes, seconds).seconds)
    return found


def copy_bytes(kind: str) -> int:
    """Size of the copy: more than any cache, at most an eighth of the free memory."""
    if kind == "cuda":
        return COPY_BYTES[kind]
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(max(COPY_BYTES[kind], CACHES * last_cache_bytes()), free // 8)


def last_cache_bytes() -> int:
    """Size of the processor's largest cache; 0 if unknown."""
    sizes = [0]
    for path in _CACHE.glob("index*/size"):
        text = path.read_text().strip()
        if text[:-1].isdigit() and text[-1] in "KM":
            sizes.append(int(text[:-1]) << (10 if text[-1] == "K" else 20))
    return max(sizes)


def _best(torch: Any, run: Callable[[], Any], seconds: float) -> Best:
    wait = torch.cuda.synchronize if kind_of_device(torch) == "cuda" else lambda: None
    run()  # the first one also chooses the kernel, and touches the memory
    wait()
    best_s, rounds, end = float("inf"), 0, time.perf_counter() + seconds
    while rounds == 0 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        wait()
        best_s = min(best_s, time.perf_counter() - start)
        rounds += 1
    return Best(best_s, rounds)
