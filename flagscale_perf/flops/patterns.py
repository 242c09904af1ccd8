"""Arguments about each layer of a model: a whole number, a list of numbers, or a text of either."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from flagscale_perf.flops.arguments import MAX_LAYERS
from flagscale_perf.spine.errors import PerfError

_TERM = re.compile(r"\(?\s*(\[[\s\d,]*\])\s*(?:\*\s*(\d{1,6}))?\s*\)?")
MAX_PATTERN = 2000  # characters
FLAGS = (0, 1)


def flags_of_layers(
    name: str, given: Any, layers: int, by_number: Callable[[int, int], bool]
) -> tuple[bool, ...]:
    """Whether the argument `name` applies to each layer; `by_number` says it of a layer where a whole number
    is given. Raises PerfError.
    """
    pattern = _parse(name, given, FLAGS) if isinstance(given, str) else given
    if type(pattern) is int and pattern > 0:
        return tuple(by_number(layer, pattern) for layer in range(layers))
    return tuple(map(bool, numbers_of_layers(name, pattern, layers, FLAGS)))


def numbers_of_layers(name: str, given: Any, layers: int, allowed: tuple[int, ...]) -> tuple[int, ...]:
    """One of the `allowed` numbers for each of these layers. Raises PerfError."""
    pattern = _parse(name, given, allowed) if isinstance(given, str) else given
    if not isinstance(pattern, Sequence) or any(one not in allowed for one in pattern):
        raise _bad(name, given, allowed)
    if len(pattern) != layers:
        raise PerfError(
            f"model: {name} describes {len(pattern)} layers, and the model has {layers}; make them agree"
        )
    return tuple(pattern)


def _bad(name: str, given: Any, allowed: tuple[int, ...]) -> PerfError:
    is_long = isinstance(given, str) and len(given) > MAX_PATTERN
    shown = f"a text of {len(given)} characters" if is_long else repr(given)
    first, *_, last = allowed
    numbers = f"{', '.join(map(str, allowed[:-1]))} and {last}"
    number = "a whole number, " if allowed == FLAGS else ""
    return PerfError(
        f"model: {name} is {shown}; write {number}a list of {numbers}, or for example '[{first}]+[{last}]*26'"
    )


def _parse(name: str, text: str, allowed: tuple[int, ...]) -> int | list[int]:
    """A number, or a list such as `([1]+[0]*2)*3`, read without evaluating code. Raises PerfError."""
    stripped = text.replace(" ", "")
    if len(stripped) > MAX_PATTERN:
        raise _bad(name, text, allowed)
    if re.fullmatch(r"\d{1,9}", stripped):
        return int(stripped)
    group = re.fullmatch(r"\((.*)\)\*(\d{1,6})", stripped)
    if group is None:
        return _parse_sum(name, stripped, allowed)
    inner, times = _parse(name, group[1], allowed), int(group[2])
    if isinstance(inner, int) or len(inner) * times > MAX_LAYERS:
        raise _bad(name, text, allowed)
    return inner * times


def _parse_sum(name: str, text: str, allowed: tuple[int, ...]) -> list[int]:
    pattern: list[int] = []
    for term in text.split("+"):
        match = _TERM.fullmatch(term)
        if match is None:
            raise _bad(name, text, allowed)
        numbers, times = [int(number) for number in re.findall(r"\d+", match[1])], int(match[2] or 1)
        if len(pattern) + len(numbers) * times > MAX_LAYERS:
            raise _bad(name, text, allowed)
        pattern += numbers * times
    return pattern
