"""Events of collectives, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flagscale_perf.profile.events import NOTHING, Events, Inputs, Kernels

WORKER = 9  # a thread of the library that executes collectives


@dataclass(frozen=True)
class E:
    """One event: its name, begin and end, and its thread (1: the program's)."""

    name: str
    start_ns: int
    end_ns: int
    thread: int = 1
    scope: int = 0
    is_async: bool = False
    shapes: Sequence[Any] = ()
    dtypes: Sequence[str] = ()
    values: Sequence[Any] = ()
    metadata: dict[str, Any] = field(default_factory=dict)


def executed(name: str, start_ns: int, end_ns: int, **more: Any) -> E:
    """What the library's thread does."""
    return E(name, start_ns, end_ns, WORKER, is_async=True, **more)


def events_of(
    made: Sequence[E], kernels: Sequence[tuple[str, int, int, int]] | None = None, shapes: bool = False
) -> Events:
    """Columns of these, which are sorted by start; kernels: name, begin, end, and event."""
    names = list(dict.fromkeys(each.name for each in made))
    return Events(
        names=names,
        name=np.array([names.index(each.name) for each in made], np.int32),
        start_ns=_ints([each.start_ns for each in made]),
        duration_ns=_ints([each.end_ns - each.start_ns for each in made]),
        thread=_ints([each.thread for each in made]),
        scope=np.array([each.scope for each in made], np.int8),
        sequence=_ints([NOTHING] * len(made)),
        forward_thread=_ints([0] * len(made)),
        is_async=np.array([each.is_async for each in made], bool),
        device_ns=_ints([NOTHING] * len(made)),
        metadata={index: each.metadata for index, each in enumerate(made) if each.metadata},
        kernels=None if kernels is None else _kernels(kernels),
        inputs=Inputs(
            [each.shapes for each in made], [each.dtypes for each in made], [each.values for each in made]
        )
        if shapes
        else None,
    )


def _kernels(made: Sequence[tuple[str, int, int, int]]) -> Kernels:
    names = list(dict.fromkeys(kernel[0] for kernel in made))
    return Kernels(
        names=names,
        name=_ints([names.index(kernel[0]) for kernel in made]),
        start_ns=_ints([kernel[1] for kernel in made]),
        duration_ns=_ints([kernel[2] - kernel[1] for kernel in made]),
        event=_ints([kernel[3] for kernel in made]),
        stream=_ints([7] * len(made)),
    )


def _ints(values: Sequence[int]) -> Any:
    return np.array(values, np.int64)
