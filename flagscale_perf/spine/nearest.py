"""Names that somebody may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_LIKE = 0.6  # difflib's own measure, from 0 to 1
_VERY_LIKE = 0.85


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """` (did you mean X?)` with the known name that is most like this one; "" where none is. What all of them
    begin with does not count.
    """
    ends = [each.removeprefix(prefix) for each in known]
    found = get_close_matches(name.removeprefix(prefix), ends, 1, _LIKE)
    return f" (did you mean {prefix}{found[0]}?)" if found else ""


def is_misspelt(name: str, known: Iterable[str]) -> bool:
    """Whether it is so like a known name that it can hardly be another one."""
    return bool(get_close_matches(name, list(known), 1, _VERY_LIKE))
