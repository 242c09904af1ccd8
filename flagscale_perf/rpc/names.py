"""Method names as users write them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flagscale_perf.spine.errors import PerfError

METHOD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,23}", re.ASCII)


def check_method(name: str) -> str:
    """Returns the name. Raises PerfError if it is not a valid method name."""
    if METHOD.fullmatch(name) is None:
        raise PerfError(
            f"{name!r} is not a method name; use at most 24 letters, digits and _, such as BatchLinear"
        )
    return name


def methods_of(given: Sequence[str] | str) -> list[str]:
    """Names from `BatchLinear,Matmul` or from a list. Raises PerfError."""
    names = [each.strip() for each in given.split(",")] if isinstance(given, str) and given else list(given)
    return [check_method(name) for name in dict.fromkeys(names)]
