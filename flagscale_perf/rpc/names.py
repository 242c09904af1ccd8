"""Method names, as users write them and as records keep them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flagscale_perf.rpc.records import METHOD_BYTES
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.units import UNKNOWN

_GAP = "~"


def recorded_name(name: object) -> str:
    """The name as a record has room for it: of a longer one the beginning and, as that says more, the end."""
    text = str(name)
    data = text.encode("utf-8", "replace")
    if len(data) <= METHOD_BYTES:
        return data.decode() or UNKNOWN
    room = METHOD_BYTES - len(_GAP)
    first, last = data[: room // 3], data[-(room - room // 3) :]
    return first.decode("utf-8", "ignore") + _GAP + last.decode("utf-8", "ignore")


def methods_of(given: Sequence[str] | str) -> list[str]:
    """Names from `Lookup,Matmul` or from a list, as recorded. Raises PerfError for one that is empty,
    and for anything else.
    """
    if not isinstance(given, Iterable):
        raise PerfError(f"methods {given!r} is no list of names; write names, such as Lookup,Matmul")
    names = [each.strip() for each in given.split(",")] if isinstance(given, str) and given else list(given)
    if "" in names:
        raise PerfError(f"methods {given!r} has an empty name; write names, such as Lookup,Matmul")
    return [recorded_name(name) for name in dict.fromkeys(names)]
