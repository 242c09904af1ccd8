"""To which layers of a model something applies: a whole number, a list of 0 and 1, or a text of either."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from flagscale_perf.flops.arguments import MAX_LAYERS
from flagscale_perf.spine.errors import PerfError

_TERM = re.compile(r"\(?\s*(\[[\s01,]*\])\s*(?:\*\s*(\d{1,6}))?\s*\)?")
MAX_PATTERN = 2000  # characters


def flags_of_layers(
    name: str, given: Any, layers: int, by_number: Callable[[int, int], bool]
) -> tuple[bool, ...]:
    """What the argument `name` says for every layer. Raises PerfError. `by_number`: whether it applies to a
    layer, if a whole number is given.

    `by_number`: whether it holds for a layer where a whole number is given.
    """
    pattern = _parse(name, given) if isinstance(given, str) else given
    if type(pattern) is int and pattern > 0:
        return tuple(by_number(layer, pattern) for layer in range(layers))
    if isinstance(pattern, Sequence) and all(one in (0, 1) for one in pattern):
        if len(pattern) != layers:
            raise PerfError(
                f"model: {name} describes {len(pattern)} layers, num_layers is {layers}; make them agree"
            )
        return tuple(bool(one) for one in pattern)
    raise _bad(name, given)


def _bad(name: str, given: Any) -> PerfError:
    is_long = isinstance(given, str) and len(given) > MAX_PATTERN
    shown = f"a text of {len(given)} characters" if is_long else repr(given)
    return PerfError(
        f"model: {name} is {shown}; write a whole number, a list of 0 and 1, or for example '[0]+[1]*26'"
    )


def _parse(name: str, text: str) -> int | list[int]:
    """A number, or a list such as `([1]+[0]*2)*3`, read without evaluating code. Raises PerfError."""
    stripped = text.replace(" ", "")
    if len(stripped) > MAX_PATTERN:
        raise _bad(name, text)
    if re.fullmatch(r"\d{1,9}", stripped):
        return int(stripped)
    group = re.fullmatch(r"\((.*)\)\*(\d{1,6})", stripped)
    if group is None:
        return _parse_sum(name, stripped)
    inner, times = _parse(name, group[1]), int(group[2])
    if isinstance(inner, int) or len(inner) * times > MAX_LAYERS:
        raise _bad(name, text)
    return inner * times


def _parse_sum(name: str, text: str) -> list[int]:
    pattern: list[int] = []
    for term in text.split("+"):
        match = _TERM.fullmatch(term)
        if match is None:
            raise _bad(name, text)
        flags, times = [int(flag) for flag in re.findall(r"[01]", match[1])], int(match[2] or 1)
        if len(pattern) + len(flags) * times > MAX_LAYERS:
            raise _bad(name, text)
        pattern += flags * times
    return pattern
