"""A rank's identity as JSON: in its ring, and in the files that nodes exchange."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from flagscale_perf.training.ranks.blocks import MAX_RANKS, RankIdentity

MAX_TEXT = 256
_TEXTS = {"hostname", "device", "device_uuid"}
_OPTIONAL = {"samples", "sample_tokens"}


def content_of(identity: RankIdentity) -> dict[str, Any]:
    """The identity as JSON types; texts are cut to `MAX_TEXT` characters."""
    return {
        name: value[:MAX_TEXT] if isinstance(value, str) else value
        for name, value in identity._asdict().items()
    }


def identity_of(given: Any) -> RankIdentity:
    """The identity of which `content_of` made this. Raises ValueError."""
    if not isinstance(given, dict) or not given.keys() >= set(RankIdentity._fields):
        raise ValueError("no identity of a rank")
    try:
        return _checked(*(given[name] for name in RankIdentity._fields))
    except TypeError:  # a list
        raise ValueError("no identity of a rank") from None


@lru_cache(1 << 14, typed=True)  # a node names its ranks in each report, and they hardly ever change
def _checked(*values: Any) -> RankIdentity:
    for name, value in zip(RankIdentity._fields, values, strict=True):
        _check(name, value)
    return RankIdentity(*values)


def _check(name: str, value: Any) -> None:
    if name in _TEXTS:
        is_good = (value is None and name == "device_uuid") or (type(value) is str and len(value) <= MAX_TEXT)
    elif value is None:
        is_good = name in _OPTIONAL
    else:
        is_good = type(value) is int and 0 <= value < 1 << 53 and (name != "rank" or value < MAX_RANKS)
    if not is_good:
        raise ValueError(f"{name} of a rank is {str(value)[:40]!r}")
